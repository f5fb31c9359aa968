/*
 * The system calls that are refused to a program which reads hostile input: those that reach objects outside
 * its view, change what it sees, or open large parts of the kernel that such a program does not need.
 *
 * Always:
 * - a call that is newer than this list is refused like one that the kernel lacks (ENOSYS), so programs fall
 *   back on an older one; a listed call is refused with EPERM;
 * - calls of another architecture end the process, because their numbers mean other calls.
 */
#include "filter.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
/* Calls with 32-bit pointers have numbers from here on. */
#define NUMBERS_END 0x40000000
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#define NUMBERS_END 0x7fffffff
#else
#error "the numbers of system calls are not known for this architecture"
#endif

/* From here on all architectures number calls alike. */
#define NEW_CALLS 424

/* The newer calls that the C library and the programs use, by number: the headers may be older. */
static const unsigned newer[] = {
	436, /* close_range */
	437, /* openat2 */
	439, /* faccessat2 */
	441, /* epoll_pwait2 */
	452, /* fchmodat2 */
};

static const unsigned refused[] = {
	/* Files by handles, which mounts do not bound. */
	SYS_name_to_handle_at,
	SYS_open_by_handle_at,
	SYS_fanotify_init,
	/* Other processes. */
	SYS_ptrace,
	SYS_process_vm_readv,
	SYS_process_vm_writev,
	SYS_kcmp,
	SYS_perf_event_open,
	/* What it sees. */
	SYS_mount,
	SYS_umount2,
	SYS_pivot_root,
	SYS_chroot,
	SYS_setns,
	SYS_unshare,
	/* The network, also the kernel's own services that are behind sockets. */
	SYS_socket,
	SYS_socketpair,
	/* The kernel's keys, programs and page faults. */
	SYS_add_key,
	SYS_request_key,
	SYS_keyctl,
	SYS_bpf,
	SYS_userfaultfd,
	SYS_io_setup,
	/* The host. */
	SYS_acct,
	SYS_adjtimex,
	SYS_clock_adjtime,
	SYS_clock_settime,
	SYS_settimeofday,
	SYS_delete_module,
	SYS_init_module,
	SYS_finit_module,
	SYS_kexec_load,
#ifdef SYS_kexec_file_load
	SYS_kexec_file_load,
#endif
	SYS_quotactl,
	SYS_reboot,
	SYS_setdomainname,
	SYS_sethostname,
	SYS_swapon,
	SYS_swapoff,
	SYS_syslog,
	SYS_vhangup,
#ifdef __x86_64__
	SYS_ioperm,
	SYS_iopl,
	SYS_modify_ldt,
#endif
};

#define COUNT(list) (sizeof(list) / sizeof(*(list)))
#define NEW_NAMESPACES                                                                                                 \
	(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)
/* Both supported architectures are little-endian: the flags are in the lower half of the first argument. */
#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offsetof(struct seccomp_data, field))
/* The next instruction runs if the loaded value compares so, and is skipped otherwise. */
#define WHEN(comparison, value) BPF_JUMP(BPF_JMP | (comparison) | BPF_K, (unsigned)(value), 0, 1)
#define ANSWER(action) BPF_STMT(BPF_RET | BPF_K, (unsigned)(action))
#define REFUSE(number) ANSWER(SECCOMP_RET_ERRNO | (number))

int refuse_calls(void)
{
	struct sock_filter code[32 + 2 * (COUNT(refused) + COUNT(newer))];
	struct sock_fprog program = {.filter = code};
	unsigned short at = 0;

	code[at++] = (struct sock_filter)LOAD(arch);
	code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0);
	code[at++] = (struct sock_filter)ANSWER(SECCOMP_RET_KILL_PROCESS);
	code[at++] = (struct sock_filter)LOAD(nr);
	for (size_t each = 0; each < COUNT(refused); each++) {
		code[at++] = (struct sock_filter)WHEN(BPF_JEQ, refused[each]);
		code[at++] = (struct sock_filter)REFUSE(EPERM);
	}
	for (size_t each = 0; each < COUNT(newer); each++) {
		code[at++] = (struct sock_filter)WHEN(BPF_JEQ, newer[each]);
		code[at++] = (struct sock_filter)ANSWER(SECCOMP_RET_ALLOW);
	}
	code[at++] = (struct sock_filter)WHEN(BPF_JGE, NUMBERS_END);
	code[at++] = (struct sock_filter)REFUSE(ENOSYS);
	code[at++] = (struct sock_filter)WHEN(BPF_JGE, NEW_CALLS);
	code[at++] = (struct sock_filter)REFUSE(ENOSYS);
	/* A clone into new namespaces is a way around unshare. */
	code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3);
	code[at++] = (struct sock_filter)LOAD(args[0]);
	code[at++] = (struct sock_filter)WHEN(BPF_JSET, NEW_NAMESPACES);
	code[at++] = (struct sock_filter)REFUSE(EPERM);
	code[at++] = (struct sock_filter)ANSWER(SECCOMP_RET_ALLOW);
	program.len = at;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}
