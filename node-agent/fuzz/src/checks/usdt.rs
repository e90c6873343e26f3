//! Crafted notes of USDT probes: the search of a target's files for them, on any bytes.

use ckb_probe_symbols::{
    Machine,
    elf::{Budget, usdt_probes},
    usdt_argument::{ARGUMENT_LIMIT, Argument, parse_arguments},
};

/// All that a search may read: enough for any file the fuzzer makes.
const BUDGET: u64 = 1 << 20;

/// Searches the bytes as if they were an ELF file, and reads them as if they were arguments.
pub fn check(bytes: &[u8]) {
    let found = usdt_probes(bytes, &mut Budget(BUDGET)).unwrap_or_default();
    for site in found.sites {
        let at = usize::try_from(site.offset).unwrap();
        let is_nop = bytes[at] == 0x90 || bytes[at..].starts_with(&[0x1f, 0x20, 0x03, 0xd5]);
        assert!(is_nop, "nothing but a nop is attached to");
        let semaphore = site.semaphore.unwrap_or_default();
        assert!(
            semaphore + 2 <= bytes.len() as u64,
            "what the kernel writes to is in the file"
        );
        assert!(site.arguments.len() <= ARGUMENT_LIMIT);
        let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_graphic());
        assert!(is_name(&site.provider) && is_name(&site.name));
        for argument in site.arguments.into_iter().flatten() {
            assert_eq!(argument.symbol(), None, "what has no address is refused");
        }
    }
    let text = String::from_utf8_lossy(bytes);
    for machine in [Machine::X86_64, Machine::Aarch64] {
        let read = parse_arguments(machine, &text);
        for argument in read.into_iter().flatten().flatten() {
            let told = argument.told(machine);
            assert_eq!(Argument::parse(machine, &told), Ok(argument));
        }
    }
}
