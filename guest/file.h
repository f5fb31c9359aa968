/* Files for the host: read, written, listed and removed by a process of their own. */
#ifndef FLOTILLA_FILE_H
#define FLOTILLA_FILE_H

#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "channel.h"
#include "frame.h"

#define FILE_PATH_BYTES_MAX 4096
#define FILE_BUFFER_BYTES (256 * 1024)

/* What the host asks for. */
struct file_request {
	uint32_t operation;
	const char *path; /* absolute */
	uint64_t offset;
	uint64_t length;
	uint32_t is_from_end; /* the offset counts from the end */
	uid_t uid;	      /* whose new files and directories are */
	gid_t gid;
	const char *bulk_device; /* NULL: content goes over the channel */
	uint64_t bulk_offset;
	uint64_t bulk_bytes;
};

int file_request(struct channel *channel, struct fields fields);

/* For the parts of the worker: each ends it. */
_Noreturn void file_fail(const char *word, const char *detail);
_Noreturn void file_fail_errno(int error);
_Noreturn void file_done(void);
void file_say(const void *bytes, size_t length);
void file_say_status(const struct stat *status, uint64_t size);

_Noreturn void file_write(const struct file_request *request);

#endif
