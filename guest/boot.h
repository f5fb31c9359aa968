/* The steps from the kernel's first process to an open port. */
#ifndef FLOTILLA_BOOT_H
#define FLOTILLA_BOOT_H

int boot(int *port);

#endif
