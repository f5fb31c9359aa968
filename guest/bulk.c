/*
 * Transfers the content of a file in pieces over the bulk disk: a small disk of the machine whose other side
 * the host reads and writes. The channel carries only the records that announce the pieces. Part of the file
 * worker: every function here may end the process.
 *
 * The channel moves bytes in pieces of 4 KiB, with an interrupt each, and copies them five times in the
 * guest; a disk moves a mebibyte at once, copied on the host. So content passes through one buffer here, read
 * from one disk and written to the other without the page cache, and the guest's processor never touches it.
 *
 * Always:
 * - a slot is reused only after the reader acknowledges it;
 * - an unaligned start or end, and content on a file system without direct I/O, goes through the page cache;
 * - small content stays in the channel.
 */
#include "bulk.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "frame.h"

#define BLOCK_BYTES 4096
#define HUGE_BYTES (2 * 1024 * 1024)

/* A file with or without direct I/O. */
struct direct {
	int fd;
	bool is_on;
	bool is_possible;
};

static int bulk_fd = -1;
static uint64_t bulk_offset;
static uint32_t slots;
static uint32_t slots_used; /* announced to the host and not acknowledged yet */
static uint32_t next_slot;
static uint8_t *buffer;

/* Whether the host's window is valid. */
bool bulk_fits(const struct file_request *request)
{
	return request->bulk_offset % BULK_PIECE_BYTES == 0 && request->bulk_bytes % BULK_PIECE_BYTES == 0 &&
	       request->bulk_bytes > 0 && request->bulk_bytes / BULK_PIECE_BYTES <= BULK_PIECES_MAX;
}

bool bulk_is_open(void)
{
	return bulk_fd >= 0;
}

/* Maps large pages if available, so that a piece is contiguous memory for the disk. */
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
	/* Tests use a file in memory as the disk, which refuses O_DIRECT; a real disk does not. */
	if (bulk_fd < 0 && errno == EINVAL)
		bulk_fd = open(request->bulk_device, flags);
	if (bulk_fd < 0)
		file_fail("refused", "the bulk disk cannot be opened");
	bulk_offset = request->bulk_offset;
	slots = (uint32_t)(request->bulk_bytes / BULK_PIECE_BYTES);
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

/* After a failed read or write: whether to try again, through the page cache. */
static bool falls_back_to_cache(struct direct *direct)
{
	if (errno != EINVAL || !direct->is_on)
		return false;
	set_direct(direct, false);
	direct->is_possible = false;
	return true;
}

/* Writes the buffer into the file at `at`. Returns 0 or an errno. */
static int write_piece(struct direct *file, size_t length, uint64_t at)
{
	for (size_t done = 0; done < length;) {
		set_direct(file, (done | length | at) % BLOCK_BYTES == 0);
		ssize_t written = pwrite(file->fd, buffer + done, length - done, (off_t)(at + done));

		if (written >= 0)
			done += (size_t)written;
		else if (errno != EINTR && !falls_back_to_cache(file))
			return errno;
	}
	return 0;
}

/* Reads `length` bytes from stdin. Returns false at an end of input before the first byte, if `may_end`. */
static bool read_input(uint8_t *bytes, size_t length, bool may_end)
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

static void read_slot(uint32_t slot, size_t length)
{
	off_t at = (off_t)(bulk_offset + (uint64_t)slot * BULK_PIECE_BYTES);

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

/* Writes all pieces that arrive into the file. Returns 0 at the end of the content, or an errno. */
int bulk_receive(int fd)
{
	struct direct file = {.fd = fd, .is_possible = true};
	uint8_t record[BULK_RECORD_BYTES];
	uint64_t at = 0;

	while (read_input(record, sizeof(record), true)) {
		uint32_t length = read_u32(record), slot = read_u32(record + 4);

		if (length == 0 || length > BULK_PIECE_BYTES || (slot >= slots && slot != BULK_INLINE))
			file_fail("refused", "invalid length or slot of a piece");
		if (slot == BULK_INLINE) {
			read_input(buffer, length, false);
		} else {
			read_slot(slot, length);
			file_send("+", 1); /* the host may fill the slot again during the write below */
		}
		int error = write_piece(&file, length, at);
		if (error != 0)
			return error;
		at += length;
	}
	return 0;
}

static void send_record(size_t length, uint32_t slot)
{
	uint8_t record[BULK_RECORD_BYTES];

	write_u32(record, (uint32_t)length);
	write_u32(record + 4, slot);
	file_send(record, sizeof(record));
}

/* Waits until the host has acknowledged a slot, if all are in use. */
static void wait_for_slot(void)
{
	uint8_t acknowledged[BULK_PIECES_MAX];

	while (slots_used == slots) {
		ssize_t got = read(STDIN_FILENO, acknowledged, sizeof(acknowledged));

		if (got == 0 || (got < 0 && errno != EINTR))
			_exit(1); /* the agent has closed the channel */
		if (got > 0)
			slots_used -= (uint32_t)got < slots_used ? (uint32_t)got : slots_used;
	}
}

static void send_piece(size_t length)
{
	if (length <= BULK_INLINE_BYTES_MAX) {
		bulk_send_bytes(buffer, length);
		return;
	}
	wait_for_slot();
	off_t at = (off_t)(bulk_offset + (uint64_t)next_slot * BULK_PIECE_BYTES);
	for (size_t done = 0; done < in_blocks(length);) {
		ssize_t written = pwrite(bulk_fd, buffer + done, in_blocks(length) - done, at + (off_t)done);

		if (written < 0 && errno != EINTR)
			file_fail_errno(errno);
		if (written > 0)
			done += (size_t)written;
	}
	send_record(length, next_slot);
	slots_used++;
	next_slot = (next_slot + 1) % slots;
}

/* Sends `count` bytes of the file from `start`. */
void bulk_send(int fd, uint64_t start, uint64_t count)
{
	struct direct file = {.fd = fd, .is_possible = true};

	for (uint64_t at = start, end = start + count; at < end;) {
		size_t wanted = end - at < BULK_PIECE_BYTES ? (size_t)(end - at) : BULK_PIECE_BYTES;

		set_direct(&file, at % BLOCK_BYTES == 0 && wanted > BULK_INLINE_BYTES_MAX);
		ssize_t got = pread(fd, buffer, file.is_on ? in_blocks(wanted) : wanted, (off_t)at);
		if (got < 0 && (errno == EINTR || falls_back_to_cache(&file)))
			continue;
		if (got < 0)
			file_fail_errno(errno);
		if (got == 0)
			file_fail("changed", "the file shrank while it was read");
		size_t length = (size_t)got < wanted ? (size_t)got : wanted;
		send_piece(length);
		at += length;
	}
}

void bulk_send_bytes(const uint8_t *bytes, size_t length)
{
	for (size_t done = 0; done < length;) {
		size_t part = length - done < BULK_INLINE_BYTES_MAX ? length - done : BULK_INLINE_BYTES_MAX;

		send_record(part, BULK_INLINE);
		file_send(bytes + done, part);
		done += part;
	}
}
