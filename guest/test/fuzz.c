/*
 * The codec's fuzz target: decodes any bytes as frames and each payload as fields, like the agent.
 *
 * Always: decoded data is inside the input; the sanitizers detect violations. After invalid bytes the search
 * for a hello continues, as in the agent, and must end.
 */
#include <stdlib.h>

#include "frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static unsigned touch(const struct frame *frame)
{
	struct fields fields = {.at = frame->payload, .end = frame->payload + frame->length};
	struct field field;
	unsigned sum = 0;

	while (fields_next(&fields, &field) > 0) {
		uint32_t number = 0;
		uint64_t large = 0;
		const char *text = NULL;

		if (field_text(&field, &text) == 0)
			sum += (unsigned char)text[field.length - 1];
		if (field_u32(&field, &number) == 0 || field_u64(&field, &large) == 0)
			sum += number + (unsigned)large;
		for (uint32_t at = 0; at < field.length; at++)
			sum += field.value[at];
	}
	return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	size_t at = 0;
	unsigned sum = 0;

	while (at < size) {
		struct frame frame;
		ssize_t used = frame_next(bytes + at, size - at, &frame);

		if (used == 0)
			break;
		if (used < 0)
			at += 1 + frame_find_hello(bytes + at + 1, size - at - 1);
		else
			at += (size_t)used;
		if (at > size)
			abort();
		if (used > 0 && frame.type != 0)
			sum += touch(&frame);
	}
	/* Uses the sum, so that reading is not optimized away. */
	__asm__ volatile("" : : "r"(sum));
	return 0;
}
