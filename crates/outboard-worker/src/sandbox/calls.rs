//! The system calls that a worker has no use for once its driver is up.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Width, SeccompCmpOp as Compare,
    SeccompCondition, SeccompFilter, SeccompRule, TargetArch, sock_filter,
};

/// Refused whatever their arguments.
const REFUSED: &[libc::c_long] = &[
    // Other programs.
    libc::SYS_execve,
    libc::SYS_execveat,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_kcmp,
    libc::SYS_perf_event_open,
    // Memory and messages of other processes by number: what shares memory here shares descriptors
    // or files.
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    // Signals by a thread's number alone.
    libc::SYS_tkill,
    // Other views of the file system.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_quotactl,
    // The kernel and its clocks, names and keys.
    libc::SYS_bpf,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // Ways around this filter, and a frequent helper of attacks on the kernel.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];

/// Installs the filter in all threads.
pub(super) fn refuse() -> Result<(), String> {
    let program = program().map_err(|error| error.to_string())?;
    seccompiler::apply_filter_all_threads(&program).map_err(|error| error.to_string())
}

fn program() -> Result<BpfProgram, seccompiler::Error> {
    let target: TargetArch =
        std::env::consts::ARCH.try_into().map_err(seccompiler::Error::Backend)?;
    let refused = || SeccompAction::Errno(libc::EPERM as u32);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    let only = |condition| SeccompRule::new(vec![condition?]).map(|rule| vec![rule]);
    // Sockets are for the driver's own processes on this machine.
    let foreign = SeccompCondition::new(0, Width::Dword, Compare::Ne, libc::AF_UNIX as u64);
    rules.insert(libc::SYS_socket, only(foreign)?);
    // Threads are clones, and so are processes.
    let thread = libc::CLONE_THREAD as u64;
    let process = SeccompCondition::new(0, Width::Dword, Compare::MaskedEq(thread), 0);
    rules.insert(libc::SYS_clone, only(process)?);
    // Signals go to this process only, ...
    let own = u64::from(std::process::id());
    for call in
        [libc::SYS_kill, libc::SYS_tgkill, libc::SYS_rt_sigqueueinfo, libc::SYS_rt_tgsigqueueinfo]
    {
        rules.insert(call, only(SeccompCondition::new(0, Width::Dword, Compare::Ne, own))?);
    }
    // ... and limits, places in memory and priorities are those of whoever calls.
    for call in [libc::SYS_prlimit64, libc::SYS_migrate_pages, libc::SYS_move_pages] {
        rules.insert(call, only(SeccompCondition::new(0, Width::Dword, Compare::Ne, 0))?);
    }
    for call in [libc::SYS_setpriority, libc::SYS_ioprio_set] {
        rules.insert(call, only(SeccompCondition::new(1, Width::Dword, Compare::Ne, 0))?);
    }
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused(), target)?;
    let mut program = unknown_calls();
    program.extend(BpfProgram::try_from(filter)?);
    Ok(program)
}

/// The beginning of the filter: calls that it cannot judge do not exist. `clone3` has its flags in
/// memory, and the C library does without it; numbers of the 32-bit form of x86-64 would be other
/// calls by other names.
fn unknown_calls() -> Vec<sock_filter> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    const X32: u32 = 0x4000_0000;
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    vec![
        // The call's number is the first word of what a filter sees.
        step(LOAD, 0, 0, 0),
        step(EQUAL, 1, 0, libc::SYS_clone3 as u32),
        step(AT_LEAST, 0, 1, X32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
    ]
}
