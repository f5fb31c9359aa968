/*
 * Users of the machine, from its files: a static program has no other way to look them up.
 *
 * Always: a line that is too long or has too few fields is passed over.
 */
#include "users.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "text.h"

#define LINE_BYTES 65536
#define FIELDS_MAX 7

/* How many fields there are, each ended with a NUL. */
static int split(char *line, char *fields[FIELDS_MAX]) {
  line[strcspn(line, "\n")] = '\0';
  int count = 0;
  while (count < FIELDS_MAX && line != NULL) {
    fields[count++] = line;
    line = strchr(line, ':');
    if (line != NULL) *line++ = '\0';
  }
  return count;
}

static bool is_number(const char *text) {
  return *text != '\0' && text[strspn(text, "0123456789")] == '\0';
}

static void find_groups(struct user *user) {
  user->groups[0] = user->gid;
  user->group_count = 1;
  FILE *file = fopen("/etc/group", "re");
  if (file == NULL) return;
  char *line = must(malloc(LINE_BYTES));
  char *fields[FIELDS_MAX];
  while (user->group_count < GROUPS_MAX && fgets(line, LINE_BYTES, file) != NULL) {
    if (split(line, fields) < 4 || !is_number(fields[2])) continue;
    char *left = NULL;
    for (char *member = strtok_r(fields[3], ",", &left); member != NULL; member = strtok_r(NULL, ",", &left)) {
      if (strcmp(member, user->name) != 0) continue;
      user->groups[user->group_count++] = (gid_t)strtoul(fields[2], NULL, 10);
      break;
    }
  }
  free(line);
  fclose(file);
}

static bool find(const char *name, struct user *user) {
  FILE *file = fopen("/etc/passwd", "re");
  if (file == NULL) return false;
  bool by_number = is_number(name);
  bool is_found = false;
  char *line = must(malloc(LINE_BYTES));
  char *fields[FIELDS_MAX];
  while (!is_found && fgets(line, LINE_BYTES, file) != NULL) {
    if (split(line, fields) < 6 || !is_number(fields[2]) || !is_number(fields[3])) continue;
    if (strcmp(by_number ? fields[2] : fields[0], name) != 0) continue;
    is_found = (size_t)snprintf(user->name, sizeof user->name, "%s", fields[0]) < sizeof user->name &&
               (size_t)snprintf(user->home, sizeof user->home, "%s", fields[5]) < sizeof user->home;
    user->uid = (uid_t)strtoul(fields[2], NULL, 10);
    user->gid = (gid_t)strtoul(fields[3], NULL, 10);
  }
  free(line);
  fclose(file);
  if (is_found) find_groups(user);
  return is_found;
}

bool user_find(const char *name, struct user *user) {
  if (*name != '\0') return find(name, user);
  if (find("user", user)) return true;
  char number[32];
  snprintf(number, sizeof number, "%u", getuid());
  return find(number, user);
}

/* Without `.`, `..` and doubled slashes; in place. */
static void normalize(char *path) {
  struct text out = {0};
  char *left = NULL;
  for (char *part = strtok_r(path, "/", &left); part != NULL; part = strtok_r(NULL, "/", &left)) {
    if (strcmp(part, ".") == 0) continue;
    if (strcmp(part, "..") == 0) {
      while (out.length > 0 && out.bytes[--out.length] != '/') continue;
      continue;
    }
    text_say(&out, "%.*s", 1, "/");
    text_add(&out, part, strlen(part));
  }
  if (out.length == 0) text_say(&out, "/");
  memcpy(path, out.bytes, out.length);
  path[out.length] = '\0';
  text_free(&out);
}

char *user_path(const struct user *user, const char *path) {
  struct text text = {0};
  bool is_home = path[0] == '~' && (path[1] == '/' || path[1] == '\0');
  if (is_home || path[0] != '/') text_say(&text, "%s/", user->home);
  text_say(&text, "%s", is_home ? path + 1 : path);
  if (text.length == 0) text_say(&text, "/");
  normalize(text.bytes);
  return text.bytes;
}
