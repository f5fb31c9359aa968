/*
 * Resolves `name`, `uid`, `name:group` or `uid:gid` with the machine's /etc/passwd and /etc/group.
 *
 * Owns the last result, which stays valid while neither file has changed: nearly every command of a machine
 * has the same user, which then costs two stat calls.
 *
 * The C library's getpwnam is not used, because in a static program it would load the host's plugins.
 */
#include "user.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES_MAX (256 * 1024) /* the rest of a larger file is ignored */
#define COLUMNS_MAX 7

/* The parts of a file's stat that show a change. */
struct version {
	ino_t inode;
	off_t size;
	struct timespec modified;
	struct timespec changed;
};

struct account {
	bool is_found;
	char name[USER_BYTES_MAX];
};

static char file_text[FILE_BYTES_MAX];
static char known_user[USER_BYTES_MAX];
static struct version known_versions[2];
static struct identity known;
static bool is_known;

static struct version version_of(const char *path)
{
	struct version version;
	struct stat status;

	memset(&version, 0, sizeof(version));
	if (stat(path, &status) == 0) {
		version.inode = status.st_ino;
		version.size = status.st_size;
		version.modified = status.st_mtim;
		version.changed = status.st_ctim;
	}
	return version;
}

/* Reads the start of the file into file_text; empty if it does not exist. */
static void read_file(const char *path)
{
	size_t size = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	while (fd >= 0 && size < sizeof(file_text) - 1) {
		ssize_t got = read(fd, file_text + size, sizeof(file_text) - 1 - size);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		size += (size_t)got;
	}
	if (fd >= 0)
		close(fd);
	file_text[size] = 0;
}

/* Splits the next line of `rest` at its colons. Returns the number of columns, 0 at the end. */
static size_t next_line(char **rest, char *columns[COLUMNS_MAX])
{
	char *line = strsep(rest, "\n");
	size_t count = 0;

	if (line == NULL)
		return 0;
	do {
		columns[count++] = strsep(&line, ":");
	} while (line != NULL && count < COLUMNS_MAX);
	return count;
}

static bool parse_id(const char *text, uint32_t *id)
{
	char *end;

	if (text[0] < '0' || text[0] > '9')
		return false;
	errno = 0;
	unsigned long value = strtoul(text, &end, 10);
	if (errno != 0 || *end != 0 || value >= UINT32_MAX)
		return false;
	*id = (uint32_t)value;
	return true;
}

/* Finds the user by name, then by number, as image configurations require. */
static struct account find_account(const char *user, struct identity *identity)
{
	struct account account = {.is_found = false};
	char *rest = file_text;
	char *columns[COLUMNS_MAX];
	uint32_t wanted = 0, uid, gid;
	bool is_number = parse_id(user, &wanted);

	read_file("/etc/passwd");
	for (size_t count; (count = next_line(&rest, columns)) > 0;) {
		if (count < 4 || !parse_id(columns[2], &uid) || !parse_id(columns[3], &gid))
			continue;
		bool is_same_name = strcmp(columns[0], user) == 0;
		if (!is_same_name && !(is_number && uid == wanted))
			continue;
		if (account.is_found && !is_same_name)
			continue;
		account.is_found = true;
		identity->uid = uid;
		identity->gid = gid;
		snprintf(account.name, sizeof(account.name), "%s", columns[0]);
		snprintf(identity->home, sizeof(identity->home), "%s", count > 5 && columns[5][0] ? columns[5] : "/");
		if (is_same_name)
			break;
	}
	if (!account.is_found && is_number) {
		account.is_found = true;
		identity->uid = wanted;
	}
	return account;
}

static bool has_member(char *members, const char *name)
{
	for (char *member; (member = strsep(&members, ",")) != NULL;)
		if (strcmp(member, name) == 0)
			return true;
	return false;
}

struct group {
	const char *name;
	gid_t gid;
	char *members; /* separated by commas */
};

/* Parses the next valid line of /etc/group from `rest`. Returns false at the end. */
static bool next_group(char **rest, struct group *group)
{
	static char none[1];
	char *columns[COLUMNS_MAX];

	for (size_t count; (count = next_line(rest, columns)) > 0;) {
		if (count < 3 || !parse_id(columns[2], &group->gid))
			continue;
		group->name = columns[0];
		group->members = count > 3 ? columns[3] : none;
		return true;
	}
	return false;
}

/* Adds the supplementary groups: those that list the account's name. */
static void add_groups(const char *name, struct identity *identity)
{
	char *rest = file_text;
	struct group group;

	read_file("/etc/group");
	while (identity->group_count < USER_GROUPS_MAX && next_group(&rest, &group))
		if (has_member(group.members, name))
			identity->groups[identity->group_count++] = group.gid;
}

static bool find_group(const char *name, struct identity *identity)
{
	char *rest = file_text;
	struct group group;

	read_file("/etc/group");
	while (next_group(&rest, &group))
		if (strcmp(group.name, name) == 0) {
			identity->gid = group.gid;
			return true;
		}
	return parse_id(name, &identity->gid);
}

static int look_up(const char *user, struct identity *identity, char *message, size_t message_size)
{
	char name[USER_BYTES_MAX];
	const char *colon = strchr(user, ':');
	const char *group = colon == NULL ? "" : colon + 1;
	int length = (int)(colon == NULL ? strlen(user) : (size_t)(colon - user));

	snprintf(name, sizeof(name), "%.*s", length, user);
	memset(identity, 0, sizeof(*identity));
	strcpy(identity->home, "/");
	struct account account = find_account(length == 0 ? "0" : name, identity);
	if (!account.is_found) {
		snprintf(message, message_size, "unable to find user %s: no matching entries in passwd file", name);
		return -ENOENT;
	}
	if (group[0] != 0 && !find_group(group, identity)) {
		snprintf(message, message_size, "unable to find group %s: no matching entries in group file", group);
		return -ENOENT;
	}
	if (group[0] == 0 && account.name[0] != 0)
		add_groups(account.name, identity);
	return 0;
}

/* Returns 0 with `identity`, valid until the next call; -ENOENT with a message for the command's stderr. */
int user_resolve(const char *user, const struct identity **identity, char *message, size_t message_size)
{
	struct version versions[2] = {version_of("/etc/passwd"), version_of("/etc/group")};

	if (strlen(user) >= sizeof(known_user)) {
		snprintf(message, message_size, "unable to find user: the name is too long");
		return -ENOENT;
	}
	if (!is_known || strcmp(known_user, user) != 0 || memcmp(versions, known_versions, sizeof(versions)) != 0) {
		is_known = false;
		int error = look_up(user, &known, message, message_size);
		if (error != 0)
			return error;
		strcpy(known_user, user);
		memcpy(known_versions, versions, sizeof(versions));
		is_known = true;
	}
	*identity = &known;
	return 0;
}
