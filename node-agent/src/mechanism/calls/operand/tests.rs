use ckb_probe_symbols::elf::Nops;

use super::*;

fn site(arguments: &[&str]) -> UsdtSite {
    UsdtSite {
        provider: "db".to_string(),
        name: "query".to_string(),
        offset: 0,
        nops: Nops::One,
        semaphore: None,
        arguments: arguments
            .iter()
            .map(|text| Argument::parse(Machine::X86_64, text))
            .collect(),
    }
}

fn of(text: &str, kind: Kept) -> Result<Operand, String> {
    let refused = |refusal: Refusal| {
        assert_eq!(refusal.reason, Reason::SymbolNotFound);
        refusal.message
    };
    operand(&site(&[text]), Numbered { number: 1, kind }).map_err(refused)
}

/// In the order of [`Operand`]'s fields, but for its kind.
fn laid_out(text: &str) -> (i64, [u8; 7]) {
    let Operand {
        displacement,
        base,
        index,
        scale,
        is_short,
        is_in_memory,
        below,
        bytes,
        kind: _,
    } = of(text, Kept::Integer).unwrap();
    let all = [base, index, scale, is_short, is_in_memory, below, bytes];
    (displacement, all)
}

#[test]
fn every_form_has_an_operand() {
    let z = ZERO;
    for (text, told) in [
        ("-4@$-7", (-7, [z, z, 0, 0, 0, 0, 4])),
        ("8@%rbx", (0, [3, z, 0, 0, 0, 0, 8])),
        ("4@%r15d", (0, [15, z, 0, 0, 0, 0, 4])),
        ("1@%ah", (0, [0, z, 0, 0, 0, 8, 1])),
        // What is not of the part is not the argument's.
        ("-4@%cx", (0, [1, z, 0, 0, 0, 0, 2])),
        ("8@(%rsp)", (0, [4, z, 0, 0, 1, 0, 8])),
        ("-2@-16(%rbp)", (-16, [5, z, 0, 0, 1, 0, 2])),
        ("4@8(%rax,%rdx,4)", (8, [0, 2, 2, 0, 1, 0, 4])),
        ("8@(%rsi,%rdi)", (0, [6, 7, 0, 0, 1, 0, 8])),
        ("1@4096(,%r9,8)", (4096, [z, 9, 3, 0, 1, 0, 1])),
        ("4@12(%eax)", (12, [0, z, 0, 1, 1, 0, 4])),
    ] {
        assert_eq!(laid_out(text), told, "{text}");
    }
    let resolved = Argument::parse(Machine::X86_64, "4@counter+4(%rip)").unwrap();
    let resolved = resolved.resolved(0x1000, |_| Ok(0x3000)).unwrap();
    let of_site = UsdtSite {
        arguments: vec![Ok(resolved)],
        ..site(&[])
    };
    let first = Numbered {
        number: 1,
        kind: Kept::Integer,
    };
    let read = operand(&of_site, first).unwrap();
    assert_eq!((read.base, read.displacement), (SITE, 0x2004));
}

#[test]
fn a_kind_is_what_the_note_and_the_question_say() {
    let kind = |text, kind| of(text, kind).unwrap().kind;
    assert_eq!(kind("-4@%eax", Kept::Integer), ValueKind::Signed as u8);
    assert_eq!(kind("4@%eax", Kept::Integer), ValueKind::Unsigned as u8);
    assert_eq!(kind("8@%rax", Kept::String), ValueKind::Text as u8);
}

#[test]
fn what_cannot_be_read_is_refused_with_a_sentence() {
    let refused = |text| of(text, Kept::Integer).unwrap_err();
    assert_eq!(
        refused("8f@%xmm0"),
        "argument 1 of db:query cannot be read: \"8f@%xmm0\" is a floating-point number, which is not read"
    );
    assert_eq!(
        refused("4@%fs:12"),
        "argument 1 of db:query cannot be read: \"4@%fs:12\" is a thread-local variable, whose address is not known"
    );
    assert_eq!(
        of("4@%eax", Kept::String).unwrap_err(),
        "argument 1 of db:query is no pointer to a text: it has 4 bytes (4@%eax)"
    );
    let third = Numbered {
        number: 3,
        kind: Kept::Integer,
    };
    let missing = |arguments: &[&str]| operand(&site(arguments), third).unwrap_err().message;
    assert_eq!(
        missing(&[]),
        "db:query has no argument 3: it has no arguments"
    );
    assert_eq!(
        missing(&["4@%eax", "4@%ebx"]),
        "db:query has no argument 3: it has 2"
    );
}

#[test]
fn values_are_told_as_what_they_are() {
    let value = |kind: ValueKind, bytes: &[u8]| {
        let mut padded = [0; TEXT_BYTES];
        padded[..bytes.len()].copy_from_slice(bytes);
        told(&Value {
            slot: 0,
            kind: kind as u32,
            bytes: padded,
        })
    };
    let minus_two = (-2_i64).to_le_bytes();
    assert_eq!(value(ValueKind::Signed, &minus_two), "-2");
    assert_eq!(
        value(ValueKind::Unsigned, &minus_two),
        "18446744073709551614"
    );
    assert_eq!(value(ValueKind::Text, b"other"), "\"other\"");
    assert_eq!(value(ValueKind::Null, b""), "null");
    assert_eq!(
        value(ValueKind::Text, &[b'x'; 47]),
        format!("\"{}\"…", "x".repeat(47))
    );
}
