/*
 * Applies the host's configuration, which makes the guest a specific machine.
 *
 * Owns what every command starts with: environment, working directory and user.
 *
 * Always: nothing of a machine is known or touched before, so a guest may wait unconfigured for any time, and
 * be saved and restored any number of times. A configuration may be repeated, by a host that lost the answer
 * or to turn a copy of a running machine into another one: steps that work only once are skipped, the others
 * are done again.
 */
#include "machine.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cgroup.h"
#include "freeze.h"
#include "generation.h"
#include "identity.h"
#include "mount.h"
#include "net.h"
#include "sockets.h"

struct machine machine = {.workdir = "/"};
static char environment_bytes[ENVIRONMENT_BYTES_MAX];

/* The texts are in the message. */
struct configuration {
	const char *hostname;
	const char *machine_id;
	const char *workdir;
	const char *user;
	const char *root_device; /* NULL: the root is mounted already */
	uint64_t root_bytes;	 /* 0: any size */
	const char *address;	 /* NULL: none */
	const char *gateway;
	uint64_t now_ms;
	const uint8_t *entropy;
	size_t entropy_length;
	const char *nameservers[NAMESERVERS_MAX];
	size_t nameserver_count;
	size_t environment_count;
	size_t environment_used;
	uint32_t is_clone;
};

static int add_environment(const struct field *field, struct configuration *configuration)
{
	const char *text;
	int error = field_text(field, &text);

	if (error != 0)
		return error;
	if (configuration->environment_count == ENVIRONMENT_MAX ||
	    field->length > sizeof(environment_bytes) - configuration->environment_used)
		return -E2BIG;
	char *copy = environment_bytes + configuration->environment_used;
	memcpy(copy, text, field->length);
	machine.environment[configuration->environment_count++] = copy;
	configuration->environment_used += field->length;
	return 0;
}

static int add_nameserver(const struct field *field, struct configuration *configuration)
{
	if (configuration->nameserver_count == NAMESERVERS_MAX)
		return -E2BIG;
	return field_text(field, &configuration->nameservers[configuration->nameserver_count++]);
}

static int read_field(const struct field *field, struct configuration *configuration)
{
	switch (field->tag) {
	case FIELD_HOSTNAME:
		return field_text(field, &configuration->hostname);
	case FIELD_MACHINE_ID:
		return field_text(field, &configuration->machine_id);
	case FIELD_WORKDIR:
		return field_text(field, &configuration->workdir);
	case FIELD_USER:
		return field_text(field, &configuration->user);
	case FIELD_ROOT_DEVICE:
		return field_text(field, &configuration->root_device);
	case FIELD_ROOT_BYTES:
		return field_u64(field, &configuration->root_bytes);
	case FIELD_ADDRESS:
		return field_text(field, &configuration->address);
	case FIELD_GATEWAY:
		return field_text(field, &configuration->gateway);
	case FIELD_NOW:
		return field_u64(field, &configuration->now_ms);
	case FIELD_ENTROPY:
		configuration->entropy = field->value;
		configuration->entropy_length = field->length;
		return 0;
	case FIELD_IS_CLONE:
		return field_u32(field, &configuration->is_clone);
	case FIELD_NAMESERVER:
		return add_nameserver(field, configuration);
	case FIELD_ENVIRONMENT:
		return add_environment(field, configuration);
	default:
		return 0;
	}
}

static int read_configuration(struct fields fields, struct configuration *configuration)
{
	struct field field;
	int got, error;

	memset(configuration, 0, sizeof(*configuration));
	machine.environment_count = 0;
	while ((got = fields_next(&fields, &field)) > 0) {
		error = read_field(&field, configuration);
		if (error != 0)
			return error;
	}
	if (got < 0 || configuration->hostname == NULL || configuration->machine_id == NULL ||
	    configuration->workdir == NULL || configuration->user == NULL || configuration->entropy == NULL ||
	    configuration->now_ms == 0 || (configuration->address == NULL) != (configuration->gateway == NULL))
		return -EBADMSG;
	if (strlen(configuration->hostname) > HOSTNAME_BYTES_MAX || strlen(configuration->workdir) >= PATH_BYTES_MAX ||
	    strlen(configuration->user) >= USER_BYTES_MAX)
		return -ENAMETOOLONG;
	machine.environment_count = configuration->environment_count;
	return 0;
}

/*
 * The directory for persistent work belongs to the user of the machine's commands, or to root if that user
 * does not exist.
 */
static int make_workspace(const char *user)
{
	char message[GUEST_MESSAGE_BYTES_MAX];
	const struct identity *identity;

	if (mkdir("/workspace", 0755) != 0)
		return errno == EEXIST ? 0 : -errno;
	if (user_resolve(user, &identity, message, sizeof(message)) != 0)
		return 0;
	return chown("/workspace", identity->uid, identity->gid) == 0 ? 0 : -errno;
}

/* Applies the configuration to the guest. `step` names the current step for error messages. */
static int apply(const struct configuration *configuration, const char **step)
{
	*step = "set the clock";
	int error = identity_clock(configuration->now_ms);
	if (error != 0)
		return error;
	*step = "add entropy";
	error = identity_entropy(configuration->entropy, configuration->entropy_length);
	if (error != 0)
		return error;
	*step = "mount the root disk";
	if (configuration->root_device != NULL)
		error = mount_root(configuration->root_device, configuration->root_bytes);
	if (error != 0)
		return error;
	*step = "mount the machine's file systems";
	error = mount_machine();
	if (error != 0)
		return error;
	cgroup_use("/sys/fs/cgroup");
	cgroup_prepare();
	*step = "write the machine's identity";
	error = identity_files(configuration->hostname, configuration->machine_id, configuration->nameservers,
			       configuration->nameserver_count);
	if (error != 0)
		return error;
	*step = "write the machine's generation";
	error = generation_ensure(configuration->machine_id);
	if (error != 0)
		return error;
	*step = "create the working directory";
	error = make_workspace(configuration->user);
	if (error == 0 && configuration->workdir[0] == '/')
		error = make_directory(configuration->workdir);
	if (error != 0)
		return error;
	*step = "bring up the network";
	error = net_loopback();
	if (error == 0 && configuration->address != NULL)
		error = net_address(configuration->address, configuration->gateway);
	return error;
}

/* What the copy of a running machine must not share with that, after the rest was applied. */
static int apply_to_clone(const char **step)
{
	*step = "end the connections of the machine that was copied";
	int error = sockets_reset(machine.address);
	if (error != 0)
		return error;
	*step = "write the machine's generation";
	error = generation_renew();
	if (error == 0)
		generation_signal();
	return error;
}

/* Returns 0, or a negative errno with the step that failed. */
int machine_configure(struct fields fields, const char **step)
{
	struct configuration configuration;

	*step = "read the configuration";
	int error = read_configuration(fields, &configuration);
	/* They would have run with the identity of another machine. */
	if (error == 0 && configuration.is_clone && !freeze_is_on()) {
		*step = "find the programs of the machine that was copied stopped";
		error = -EBUSY;
	}
	if (error == 0 && machine.is_init)
		error = apply(&configuration, step);
	if (error == 0 && machine.is_init && configuration.is_clone)
		error = apply_to_clone(step);
	if (error != 0)
		return error;
	error = net_parse(configuration.address, configuration.gateway, &machine.address, &machine.gateway);
	if (error != 0)
		return error;
	strcpy(machine.workdir, configuration.workdir[0] == 0 ? "/" : configuration.workdir);
	strcpy(machine.user, configuration.user);
	machine.is_configured = true;
	if (configuration.is_clone)
		freeze_end();
	return 0;
}
