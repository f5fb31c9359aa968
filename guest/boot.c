/*
 * The steps of PID 1 before it can receive the host's requests: mounts, modules, processors, the port.
 *
 * Always: nothing here depends on which machine this is, and all processors run before the host can connect.
 * The modules are listed in /modules.list, one path per line, in load order; their files are removed after
 * loading, because the initial file system is in memory.
 */
#include "boot.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent-limits.h"
#include "log.h"
#include "memory.h"
#include "mount.h"
#include "timer.h"

#define PORT_NAME "flotilla.agent"
#define PORTS_DIRECTORY "/sys/class/virtio-ports"
#define MODULES_LIST "/modules.list"
#define MODULES_LIST_BYTES_MAX (16 * 1024)

static int load_module(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	int error = syscall(SYS_finit_module, fd, "", 0) == 0 || errno == EEXIST ? 0 : -errno;
	close(fd);
	unlink(path);
	return error;
}

static void load_modules(void)
{
	static char list[MODULES_LIST_BYTES_MAX];
	int fd = open(MODULES_LIST, O_RDONLY | O_CLOEXEC);
	ssize_t size = fd < 0 ? -1 : read(fd, list, sizeof(list) - 1);
	char *rest = list;

	if (fd >= 0)
		close(fd);
	if (size <= 0)
		return;
	list[size] = 0;
	for (char *path; (path = strsep(&rest, "\n")) != NULL;) {
		int error = path[0] == 0 ? 0 : load_module(path);
		if (error != 0)
			log_line("cannot load the module", path, error);
	}
}

/*
 * The kernel boots with one processor (node/src/driver/qemu/argv.ts has the reason); this starts the others.
 * A processor that fails to start leaves a machine with fewer.
 */
static void start_processors(void)
{
	char path[PATH_BYTES_MAX];

	for (int number = 1;; number++) {
		snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/online", number);
		int fd = open(path, O_WRONLY | O_CLOEXEC);
		if (fd < 0)
			return;
		if (write(fd, "1", 1) < 0)
			log_line("cannot start the processor", path, -errno);
		close(fd);
	}
}

/* Best effort: the kernel may lack the setting. */
static void set_number(const char *path, const char *number)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, number, strlen(number)) < 0)
		log_line("cannot set", path, -errno);
	if (fd >= 0)
		close(fd);
}

static int has_port_name(const char *port)
{
	char path[PATH_BYTES_MAX], name[64];

	snprintf(path, sizeof(path), PORTS_DIRECTORY "/%.200s/name", port);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	ssize_t size = read(fd, name, sizeof(name) - 1);
	close(fd);
	return size == (ssize_t)strlen(PORT_NAME) + 1 && strncmp(name, PORT_NAME "\n", (size_t)size) == 0;
}

static int open_port(void)
{
	char path[PATH_BYTES_MAX];
	DIR *directory = opendir(PORTS_DIRECTORY);
	int fd = -ENOENT;

	if (directory == NULL)
		return -errno;
	for (const struct dirent *entry; fd == -ENOENT && (entry = readdir(directory)) != NULL;) {
		if (entry->d_name[0] == '.' || !has_port_name(entry->d_name))
			continue;
		snprintf(path, sizeof(path), "/dev/%.200s", entry->d_name);
		fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
		if (fd < 0)
			fd = -errno;
	}
	closedir(directory);
	return fd;
}

/* Receives an event for every device that appears or gets its name. */
static int open_device_events(void)
{
	struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = 1};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_KOBJECT_UEVENT);

	if (fd >= 0 && bind(fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
		close(fd);
		fd = -1;
	}
	return fd < 0 ? -errno : fd;
}

/* The port's device appears after its driver is loaded, and its name after the device. */
static int wait_for_port(int device_events)
{
	char event[4096];
	int port = open_port();

	while (port < 0) {
		if (recv(device_events, event, sizeof(event), 0) < 0 && errno != EINTR && errno != ENOBUFS)
			return -errno;
		port = open_port();
	}
	return port;
}

static void open_console(void)
{
	int fd = open("/dev/console", O_RDWR | O_NOCTTY);

	if (fd < 0)
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd < 2)
		fd = dup(fd);
	if (fd > 2)
		close(fd);
}

/* Returns 0 and the open port to the host, or a negative errno. */
int boot(int *port)
{
	int error = mount_early();

	open_console();
	if (error != 0)
		return error;
	int device_events = open_device_events();
	if (device_events < 0)
		return device_events;
	load_modules();
	/* Most of an idle guest's work is counting pages every second and checking fragmentation twice a second. */
	set_number("/proc/sys/vm/stat_interval", "60");
	set_number("/proc/sys/vm/compaction_proactiveness", "0");
	timer_init(TIMER_LIST);
	start_processors();
	memory_init();
	*port = wait_for_port(device_events);
	close(device_events);
	return *port < 0 ? *port : 0;
}
