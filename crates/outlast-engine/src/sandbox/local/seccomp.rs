//! The system calls that a program in a sandbox may not make.
//!
//! Namespaces and missing capabilities already refuse most of these. The filter takes away what remains of the
//! kernel's surface: calls that no build tool, interpreter or test needs and that had a history of holes.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

/// Refused whatever their arguments are.
const FORBIDDEN: &[i64] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_move_pages,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
];

/// Local, IPv4, IPv6, and netlink, which `getaddrinfo` and interface lists need.
const SOCKET_FAMILIES: &[i32] = &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// These type into the terminal of somebody else.
const TERMINAL_REQUESTS: &[u64] = &[libc::TIOCSTI, libc::TIOCLINUX];

const X32_BIT: i64 = 0x4000_0000;

/// The filter in the form that bwrap loads: the kernel's `struct sock_filter`, one after the other.
pub(super) fn filter() -> Result<Vec<u8>, seccompiler::BackendError> {
    let mut bytes = Vec::new();
    for instruction in program()? {
        bytes.extend(instruction.code.to_ne_bytes());
        bytes.extend([instruction.jt, instruction.jf]);
        bytes.extend(instruction.k.to_ne_bytes());
    }
    Ok(bytes)
}

fn program() -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        FORBIDDEN.iter().map(|call| (*call, Vec::new())).collect();
    let mut families = Vec::new();
    for family in SOCKET_FAMILIES {
        families.push(condition(0, SeccompCmpOp::Ne, u64::from(family.unsigned_abs()))?);
    }
    rules.insert(libc::SYS_socket, vec![SeccompRule::new(families)?]);
    let mut terminal = Vec::new();
    for request in TERMINAL_REQUESTS {
        terminal.push(rule([condition(1, SeccompCmpOp::Eq, *request)?])?);
    }
    rules.insert(libc::SYS_ioctl, terminal);
    // The x32 flavour of a call has another number, which would slip through. Its own numbers begin at 512.
    let x32: Vec<i64> = rules.keys().copied().chain(512..548).map(|call| call | X32_BIT).collect();
    rules.extend(x32.into_iter().map(|call| (call, Vec::new())));
    let errno = u32::try_from(libc::EPERM).expect("errors are positive");
    let filter =
        SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno), architecture()?)?;
    filter.try_into()
}

fn architecture() -> Result<TargetArch, seccompiler::BackendError> {
    std::env::consts::ARCH.try_into()
}

fn condition(
    argument: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
}

fn rule<const N: usize>(conditions: [SeccompCondition; N]) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(conditions.into())
}
