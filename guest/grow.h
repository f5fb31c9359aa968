/* The growth of the machine's file system to the size of its disk. */
#ifndef FLOTILLA_GROW_H
#define FLOTILLA_GROW_H

int grow_at_once(const char *device, const char *root);
void grow_the_rest(void);

#endif
