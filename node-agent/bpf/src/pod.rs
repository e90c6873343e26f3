//! Shared types as aya's maps take them.

/// Wraps a type of `ckb_probe_common`, which cannot know aya.
macro_rules! pod {
    ($($wrapper:ident($inner:ty);)*) => {$(
        #[repr(transparent)]
        #[derive(Clone, Copy)]
        struct $wrapper($inner);
        // SAFETY: repr(C), integers only, no padding, any bit pattern is valid.
        unsafe impl aya::Pod for $wrapper {}
    )*};
}

pub(super) use pod;
