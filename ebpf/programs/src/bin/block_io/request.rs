//! What the kernel's `struct request` says.

use core::ffi::c_void;

use aya_ebpf::programs::BtfTracePointContext;
use ckb_probe_common::block_io::Direction;
use ckb_probe_programs::fields;

// The loader made sure of their sizes. All are read as the verifier knows them, starting at what the tracepoint hands out.
fields!(FIELDS: QUEUE, OPERATION, FLAGS, BYTES, BEGAN, DISK, MAJOR, MINOR, NAME);

/// A request.
#[derive(Clone, Copy)]
pub struct Request(*const c_void);

/// A disk.
#[derive(Clone, Copy)]
pub struct Disk(*const c_void);

impl Request {
    /// A tracepoint's first argument.
    #[inline(always)]
    pub fn of(context: &BtfTracePointContext) -> Self {
        Self(context.arg(0))
    }

    /// What tells it from others while it lasts.
    #[inline(always)]
    pub fn address(self) -> u64 {
        self.0 as u64
    }

    /// What is done.
    #[inline(always)]
    pub fn direction(self) -> Direction {
        // SAFETY: a request.
        Direction::of(unsafe { FIELDS.trusted_u32::<OPERATION>(self.0) } as u8)
    }

    /// How the kernel treats it.
    #[inline(always)]
    pub fn flags(self) -> u32 {
        // SAFETY: a request.
        unsafe { FIELDS.trusted_u32::<FLAGS>(self.0) }
    }

    /// What is still to be done of it.
    #[inline(always)]
    pub fn bytes(self) -> u32 {
        // SAFETY: a request.
        unsafe { FIELDS.trusted_u32::<BYTES>(self.0) }
    }

    /// When it began, by the clock of `bpf_ktime_get_ns`; 0 where the kernel did not note it.
    #[inline(always)]
    pub fn began_ns(self) -> u64 {
        // SAFETY: a request.
        unsafe { FIELDS.trusted_u64::<BEGAN>(self.0) }
    }

    /// What it is for.
    #[inline(always)]
    pub fn disk(self) -> Option<Disk> {
        // SAFETY: a request, and its queue.
        let disk = unsafe {
            let queue = FIELDS.trusted_u64::<QUEUE>(self.0) as *const c_void;
            FIELDS.trusted_u64::<DISK>(queue) as *const c_void
        };
        (!disk.is_null()).then_some(Disk(disk))
    }
}

impl Disk {
    /// The device number.
    #[inline(always)]
    pub fn device(self) -> u32 {
        // SAFETY: a disk.
        unsafe { FIELDS.trusted_u32::<MAJOR>(self.0) << 20 | FIELDS.trusted_u32::<MINOR>(self.0) }
    }

    /// Its name, NUL-padded.
    #[inline(always)]
    pub fn name(self) -> [u8; 32] {
        // SAFETY: bytes.
        unsafe { FIELDS.value::<NAME, _>(self.0) }.unwrap_or_default()
    }
}
