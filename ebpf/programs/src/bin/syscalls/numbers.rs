//! Numbers of the architecture's own.

#[cfg(bpf_target_arch = "aarch64")]
pub use aarch64::*;
#[cfg(bpf_target_arch = "x86_64")]
pub use x86_64::*;

#[cfg(bpf_target_arch = "x86_64")]
mod x86_64 {
    /// `TS_COMPAT`: in a system call of a 32-bit program.
    pub const OF_32_BITS: u32 = 2;

    /// `rt_sigreturn` returns what the interrupted code had in that register.
    pub const SIGNAL_RETURN: u32 = 15;

    /// By which the kernel makes some calls again.
    pub const RESTART: u32 = 219;

    /// Calls that do not return: nothing is known of their end.
    pub const EXIT: u32 = 60;
    pub const EXIT_GROUP: u32 = 231;
}

#[cfg(bpf_target_arch = "aarch64")]
mod aarch64 {
    /// `TIF_32BIT`: the thread is one of a 32-bit program.
    pub const OF_32_BITS: u32 = 1 << 22;

    /// `rt_sigreturn` returns what the interrupted code had in that register.
    pub const SIGNAL_RETURN: u32 = 139;

    /// By which the kernel makes some calls again.
    pub const RESTART: u32 = 128;

    /// Calls that do not return: nothing is known of their end.
    pub const EXIT: u32 = 93;
    pub const EXIT_GROUP: u32 = 94;
}
