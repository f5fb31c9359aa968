/*
 * Content of a file in pieces that lie on the bulk disk: a small disk of the machine whose other side the host reads and
 * writes. Over the channel goes only what tells of them. A worker's part: every function here may end the process.
 *
 * The channel takes a byte in pieces of 4 KiB, each with an interrupt, and copies it five times in this guest; a disk takes a
 * mebibyte at once and copies it on the host. So content passes through one buffer here, read from one disk and written to
 * the other without the page cache, and the processor of the guest never touches it.
 *
 * Always: a piece's place is used again only when its reader has said that it has it. What begins or ends in the middle of a
 * block, and what a file system does not let pass around its cache, goes through the cache. Small content stays in the
 * channel.
 */
#include "bulk.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "frame.h"

#define BLOCK_BYTES 4096
#define HUGE_BYTES (2 * 1024 * 1024)

/* How a file is open now. */
struct direct {
	int fd;
	bool is_on;
	bool is_possible;
};

static int bulk_fd = -1;
static uint64_t bulk_offset;
static uint32_t places;
static uint32_t places_used; /* told to the host, which has not taken them yet */
static uint32_t next_place;
static uint8_t *buffer;

/* What the host offers makes sense. */
bool bulk_fits(const struct file_request *request)
{
	return request->bulk_offset % BULK_PIECE_BYTES == 0 && request->bulk_bytes % BULK_PIECE_BYTES == 0 &&
	       request->bulk_bytes > 0 && request->bulk_bytes / BULK_PIECE_BYTES <= BULK_PIECES_MAX;
}

bool bulk_is_open(void)
{
	return bulk_fd >= 0;
}

/* Of large pages where there are some, so that a piece is one stretch of memory for the disk. */
static uint8_t *make_buffer(void)
{
	size_t size = BULK_PIECE_BYTES + HUGE_BYTES;
	uint8_t *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (bytes == MAP_FAILED)
		file_fail_errno(errno);
	madvise(bytes, size, MADV_HUGEPAGE);
	return bytes + (HUGE_BYTES - (uintptr_t)bytes % HUGE_BYTES) % HUGE_BYTES;
}

void bulk_open(const struct file_request *request)
{
	int flags = (request->operation == FILE_WRITE ? O_RDONLY : O_RDWR) | O_CLOEXEC;

	bulk_fd = open(request->bulk_device, flags | O_DIRECT);
	/* A file in memory stands for the disk in tests; no disk says this. */
	if (bulk_fd < 0 && errno == EINVAL)
		bulk_fd = open(request->bulk_device, flags);
	if (bulk_fd < 0)
		file_fail("refused", "the bulk disk cannot be opened");
	bulk_offset = request->bulk_offset;
	places = (uint32_t)(request->bulk_bytes / BULK_PIECE_BYTES);
	buffer = make_buffer();
}

static size_t in_blocks(size_t length)
{
	return (length + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
}

static void set_direct(struct direct *direct, bool is_wanted)
{
	if (direct->is_on == is_wanted || (is_wanted && !direct->is_possible))
		return;
	int flags = fcntl(direct->fd, F_GETFL);
	if (flags >= 0 && fcntl(direct->fd, F_SETFL, is_wanted ? flags | O_DIRECT : flags & ~O_DIRECT) == 0)
		direct->is_on = is_wanted;
	else
		direct->is_possible = false;
}

/* Whether it is worth another try, through the cache. */
static bool gives_up_direct(struct direct *direct)
{
	if (errno != EINVAL || !direct->is_on)
		return false;
	set_direct(direct, false);
	direct->is_possible = false;
	return true;
}

/* 0, or an errno. */
static int put(struct direct *file, size_t length, uint64_t at)
{
	for (size_t done = 0; done < length;) {
		set_direct(file, (done | length | at) % BLOCK_BYTES == 0);
		ssize_t written = pwrite(file->fd, buffer + done, length - done, (off_t)(at + done));

		if (written >= 0)
			done += (size_t)written;
		else if (errno != EINTR && !gives_up_direct(file))
			return errno;
	}
	return 0;
}

/* Whether all of it came; false at an end that lies between records. */
static bool hear(uint8_t *bytes, size_t length, bool may_end)
{
	for (size_t done = 0; done < length;) {
		ssize_t got = read(STDIN_FILENO, bytes + done, length - done);

		if (got == 0 && done == 0 && may_end)
			return false;
		if (got == 0)
			file_fail("refused", "the content ended in the middle of a piece");
		if (got < 0 && errno != EINTR)
			file_fail_errno(errno);
		if (got > 0)
			done += (size_t)got;
	}
	return true;
}

static void fetch(uint32_t place, size_t length)
{
	off_t at = (off_t)(bulk_offset + (uint64_t)place * BULK_PIECE_BYTES);

	for (size_t done = 0; done < length;) {
		ssize_t got = pread(bulk_fd, buffer + done, in_blocks(length - done), at + (off_t)done);

		if (got == 0)
			file_fail("refused", "the bulk disk is too small");
		if (got < 0 && errno != EINTR)
			file_fail_errno(errno);
		if (got > 0)
			done += (size_t)got;
	}
}

/* Writes all pieces that come into the file. 0 when all are there, an errno otherwise. */
int bulk_take(int fd)
{
	struct direct file = {.fd = fd, .is_possible = true};
	uint8_t record[BULK_RECORD_BYTES];
	uint64_t at = 0;

	while (hear(record, sizeof(record), true)) {
		uint32_t length = read_u32(record), place = read_u32(record + 4);

		if (length == 0 || length > BULK_PIECE_BYTES || (place >= places && place != BULK_INLINE))
			file_fail("refused", "a piece that cannot be");
		if (place == BULK_INLINE) {
			hear(buffer, length, false);
		} else {
			fetch(place, length);
			file_say("+", 1); /* the host may fill it again while this is written */
		}
		int error = put(&file, length, at);
		if (error != 0)
			return error;
		at += length;
	}
	return 0;
}

static void say_record(size_t length, uint32_t place)
{
	uint8_t record[BULK_RECORD_BYTES];

	write_u32(record, (uint32_t)length);
	write_u32(record + 4, place);
	file_say(record, sizeof(record));
}

/* Waits until the host has taken something. */
static void wait_for_place(void)
{
	uint8_t taken[BULK_PIECES_MAX];

	while (places_used == places) {
		ssize_t got = read(STDIN_FILENO, taken, sizeof(taken));

		if (got == 0 || (got < 0 && errno != EINTR))
			_exit(1); /* nobody listens any more */
		if (got > 0)
			places_used -= (uint32_t)got < places_used ? (uint32_t)got : places_used;
	}
}

static void say_piece(size_t length)
{
	if (length <= BULK_INLINE_BYTES_MAX) {
		bulk_say_bytes(buffer, length);
		return;
	}
	wait_for_place();
	off_t at = (off_t)(bulk_offset + (uint64_t)next_place * BULK_PIECE_BYTES);
	for (size_t done = 0; done < in_blocks(length);) {
		ssize_t written = pwrite(bulk_fd, buffer + done, in_blocks(length) - done, at + (off_t)done);

		if (written < 0 && errno != EINTR)
			file_fail_errno(errno);
		if (written > 0)
			done += (size_t)written;
	}
	say_record(length, next_place);
	places_used++;
	next_place = (next_place + 1) % places;
}

/* Says `count` bytes of the file from `start`. */
void bulk_say(int fd, uint64_t start, uint64_t count)
{
	struct direct file = {.fd = fd, .is_possible = true};

	for (uint64_t at = start, end = start + count; at < end;) {
		size_t wanted = end - at < BULK_PIECE_BYTES ? (size_t)(end - at) : BULK_PIECE_BYTES;

		set_direct(&file, at % BLOCK_BYTES == 0 && wanted > BULK_INLINE_BYTES_MAX);
		ssize_t got = pread(fd, buffer, file.is_on ? in_blocks(wanted) : wanted, (off_t)at);
		if (got < 0 && (errno == EINTR || gives_up_direct(&file)))
			continue;
		if (got < 0)
			file_fail_errno(errno);
		if (got == 0)
			file_fail("changed", "the file became shorter while it was read");
		size_t length = (size_t)got < wanted ? (size_t)got : wanted;
		say_piece(length);
		at += length;
	}
}

void bulk_say_bytes(const uint8_t *bytes, size_t length)
{
	for (size_t done = 0; done < length;) {
		size_t part = length - done < BULK_INLINE_BYTES_MAX ? length - done : BULK_INLINE_BYTES_MAX;

		say_record(part, BULK_INLINE);
		file_say(bytes + done, part);
		done += part;
	}
}
