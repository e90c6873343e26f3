//! The programs by which calls are seen, where all that differs is what is done at a call's two ends. Those of `calls` do more at
//! each, and are written out there.

/// Tells the kernel not to call a session at the call's return.
pub const NO_RETURN: u32 = 1;

/// `call_session`, which sees both ends of a call; `call_enter` and `call_return`, a pair that does; and `call_count`, which sees its
/// beginning only. `$enters` is given the context of the one and says whether the return matters; `$returns` that of the other, and
/// the registers.
#[macro_export]
macro_rules! call_programs {
    ($enters:path, $returns:path) => {
        // Not by aya's macro: see the programs of `calls`.
        #[unsafe(no_mangle)]
        #[unsafe(link_section = "uprobe")]
        extern "C" fn call_session(registers: *mut ::core::ffi::c_void) -> u32 {
            let context = ::aya_ebpf::programs::ProbeContext::new(registers);
            let remembered = $crate::session::word(::aya_ebpf::EbpfContext::as_ptr(&context));
            // SAFETY: see there.
            if unsafe { *remembered } != 0 {
                $returns(&context, context.regs);
                return 0;
            }
            if !$enters(&context) {
                return $crate::calls::NO_RETURN;
            }
            // SAFETY: as above.
            unsafe { *remembered = 1 };
            0
        }

        #[::aya_ebpf::macros::uprobe]
        pub fn call_enter(context: ::aya_ebpf::programs::ProbeContext) -> u32 {
            $enters(&context);
            0
        }

        #[::aya_ebpf::macros::uretprobe]
        pub fn call_return(context: ::aya_ebpf::programs::RetProbeContext) -> u32 {
            $returns(&context, context.regs);
            0
        }

        #[::aya_ebpf::macros::uprobe]
        pub fn call_count(context: ::aya_ebpf::programs::ProbeContext) -> u32 {
            $enters(&context);
            0
        }
    };
}
