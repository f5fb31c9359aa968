/*
 * Decodes a test's input from standard input, one line of hexadecimal each, and prints the result.
 *
 * `vectors frames`: for each line its frames as `frame <type> <flags> <channel> <payload>`, then `ok`,
 * `incomplete` or `refused`. `vectors fields`: its fields as `field <tag> <value>`, with the value as u32,
 * u64 or text if it can be one, then `ok` or `refused`. Each line's bytes are in a buffer of exactly their
 * size, so that the sanitizers detect a read past the end.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frame.h"

static void print_hex(const uint8_t *bytes, size_t size)
{
	if (size == 0)
		printf("-");
	for (size_t at = 0; at < size; at++)
		printf("%02x", bytes[at]);
}

static void print_frames(const uint8_t *bytes, size_t size)
{
	size_t at = 0;

	while (at < size) {
		struct frame frame;
		ssize_t used = frame_next(bytes + at, size - at, &frame);

		if (used <= 0) {
			printf(used == 0 ? "incomplete\n" : "refused\n");
			return;
		}
		at += (size_t)used;
		if (frame.type == 0)
			continue;
		printf("frame %u %u %u ", frame.type, frame.flags, frame.channel);
		print_hex(frame.payload, frame.length);
		printf("\n");
	}
	printf("ok\n");
}

static void print_field(const struct field *field)
{
	uint32_t number;
	uint64_t time;
	const char *text;

	printf("field %u ", field->tag);
	print_hex(field->value, field->length);
	if (field_u32(field, &number) == 0)
		printf(" u32=%u", number);
	if (field_u64(field, &time) == 0)
		printf(" u64=%llu", (unsigned long long)time);
	if (field_text(field, &text) == 0) {
		printf(" text=");
		print_hex((const uint8_t *)text, strlen(text));
	}
	printf("\n");
}

static void print_fields(const uint8_t *bytes, size_t size)
{
	struct fields fields = {.at = bytes, .end = bytes + size};
	struct field field;
	int got;

	while ((got = fields_next(&fields, &field)) > 0)
		print_field(&field);
	printf(got == 0 ? "ok\n" : "refused\n");
}

int main(int argc, char **argv)
{
	char *line = NULL;
	size_t capacity = 0;
	ssize_t length;

	if (argc != 2)
		return 1;
	while ((length = getline(&line, &capacity, stdin)) > 0) {
		size_t size = (size_t)(length - 1) / 2;
		uint8_t *bytes = malloc(size + (size == 0));

		for (size_t at = 0; at < size; at++)
			if (sscanf(line + 2 * at, "%2hhx", &bytes[at]) != 1)
				return 1;
		if (strcmp(argv[1], "frames") == 0)
			print_frames(bytes, size);
		else
			print_fields(bytes, size);
		free(bytes);
	}
	free(line);
	return 0;
}
