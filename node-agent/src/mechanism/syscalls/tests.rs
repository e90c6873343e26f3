use std::io;

use super::*;

fn refused(number: i32) -> Refusal {
    refusal(&AttachError::Program {
        program: "syscall_enter",
        source: io::Error::from_raw_os_error(number),
        log: String::new(),
    })
}

#[test]
fn what_the_kernel_is_only_short_of_is_tried_again() {
    for number in [
        libc::EAGAIN,
        libc::EBUSY,
        libc::EMFILE,
        libc::ENFILE,
        libc::ENOMEM,
    ] {
        let refusal = refused(number);
        assert_eq!(refusal.reason, Reason::AttachFailed, "{refusal}");
        assert!(!refusal.is_lasting());
    }
    let types = io::Error::from_raw_os_error(libc::EMFILE);
    assert!(!refusal(&AttachError::NoTypes(types)).is_lasting());
    let ended = AttachError::NoRoom("as many are traced as can be");
    assert!(!refusal(&ended).is_lasting());
}

#[test]
fn what_the_kernel_lacks_is_not_tried_again() {
    for number in [libc::EINVAL, libc::EACCES, libc::EPERM, libc::ENOTSUP] {
        let refusal = refused(number);
        assert_eq!(refusal.reason, Reason::UnsupportedByKernel, "{refusal}");
        assert!(refusal.is_lasting());
    }
}
