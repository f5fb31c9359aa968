/* The processes that the kernel has killed for lack of memory. */
#ifndef FLOTILLA_KILLED_H
#define FLOTILLA_KILLED_H

#define KERNEL_LOG "/dev/kmsg"

void killed_init(int epoll, const char *log_path);
void killed_attach(void);
void killed_read_by_host(void);
void killed_event(void);
void killed_pump(void);

#endif
