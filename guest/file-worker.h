/* What all parts of a file worker use: its request, its output and its end. */
#ifndef FLOTILLA_FILE_WORKER_H
#define FLOTILLA_FILE_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#define FILE_BUFFER_BYTES (256 * 1024)
#define FILE_STATUS_BYTES_MAX 96

struct file_request {
	uint32_t operation;
	const char *path; /* absolute */
	uint64_t offset;
	uint64_t length;
	uint32_t is_from_end; /* the offset counts from the end */
	uid_t uid;	      /* owner of new files and directories */
	gid_t gid;
	const char *bulk_device; /* NULL: content goes over the channel */
	uint64_t bulk_offset;
	uint64_t bulk_bytes;
};

_Noreturn void file_fail(const char *code, const char *detail);
_Noreturn void file_fail_errno(int error);
void file_is_in_memory(bool is_in_memory); /* said with `no_space` */
_Noreturn void file_done(void);

void file_send(const void *bytes, size_t length);
void file_send_status(const struct stat *status, uint64_t size);
int file_print_status(char *text, size_t size, const struct stat *status, uint64_t bytes, char end);

#endif
