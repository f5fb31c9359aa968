/* Grows the machine's file system to the size of its disk. */
#ifndef FLOTILLA_GROW_H
#define FLOTILLA_GROW_H

int grow_first(const char *device, const char *root);
void grow_in_background(void);

#endif
