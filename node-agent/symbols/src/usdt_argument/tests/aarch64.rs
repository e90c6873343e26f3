//! Arguments of arm64.

use super::*;

const MACHINE: Machine = Machine::Aarch64;

fn x(number: u8) -> Register {
    Register {
        number,
        bytes: 8,
        is_second_byte: false,
    }
}

fn w(number: u8) -> Register {
    Register {
        bytes: 4,
        ..x(number)
    }
}

#[test]
fn what_its_compilers_write_is_understood() {
    let at = |number| Base::Register(x(number));
    let all = [
        ("-4@x0", 4, true, Operand::Register(x(0))),
        ("8@x30", 8, false, Operand::Register(x(30))),
        ("4@w19", 4, false, Operand::Register(w(19))),
        ("8@sp", 8, false, Operand::Register(x(31))),
        ("-4@5", 4, true, Operand::Constant(5)),
        ("-4@-1", 4, true, Operand::Constant(-1)),
        ("8@#0x10", 8, false, Operand::Constant(16)),
        ("4@wzr", 4, false, Operand::Constant(0)),
        ("8@[x1]", 8, false, memory(at(1), None, 0)),
        ("-4@[sp, 12]", 4, true, memory(at(31), None, 12)),
        ("8@[x29,-16]", 8, false, memory(at(29), None, -16)),
        ("8@[x0, #8]", 8, false, memory(at(0), None, 8)),
        ("1@[x1, x2]", 1, false, memory(at(1), Some((x(2), 1)), 0)),
        (
            "8@[x1, x2, lsl 3]",
            8,
            false,
            memory(at(1), Some((x(2), 8)), 0),
        ),
        (
            "4@[x1, x2, lsl #2]",
            4,
            false,
            memory(at(1), Some((x(2), 4)), 0),
        ),
        ("x3", 8, false, Operand::Register(x(3))),
    ];
    for (text, bytes, is_signed, operand) in all {
        let argument = Argument {
            bytes,
            is_signed,
            operand,
        };
        assert_eq!(Argument::parse(MACHINE, text), Ok(argument), "{text}");
    }
    let read = parse_arguments(MACHINE, " -4@[sp, 12]  8@x0 4@[x1, x2, lsl 2]").unwrap();
    assert_eq!(read.len(), 3);
    assert!(read.iter().all(Result::is_ok), "{read:?}");
}

#[test]
fn what_is_not_understood_is_refused_with_a_sentence() {
    let all = [
        (
            "8f@d0",
            "\"8f@d0\" is a floating-point number, which is not read",
        ),
        (
            "4@s31",
            "\"4@s31\" is a floating-point number, which is not read",
        ),
        (
            "4@[x0, w1, sxtw 2]",
            "\"4@[x0, w1, sxtw 2]\" is at an address that is made of half a register, which is not read",
        ),
        (
            "4@[x0, #:lo12:counter]",
            "\"4@[x0, #:lo12:counter]\" is an address that is not known before the program is loaded",
        ),
        (
            "16@x0",
            "\"16@x0\" has a size that is not 1, 2, 4 or 8 bytes",
        ),
    ];
    for (text, sentence) in all {
        let error = Argument::parse(MACHINE, text).unwrap_err();
        assert_eq!(error.to_string(), sentence, "{text}");
    }
    for text in [
        "8@",
        "8@x31",
        "8@x01",
        "8@x",
        "8@y1",
        "8@%rax",
        "8@$1",
        "8@[",
        "8@[]",
        "8@[x0",
        "8@x0]",
        "8@[w0]",
        "8@[x0, x1, lsl 4]",
        "8@[x0, x1, asr 1]",
        "8@[x0, 8, lsl 1]",
        "8@[x0, sp]",
        "8@[x0, x1, lsl 1, 2]",
        "8@[8]",
        "8@[x0], 8",
        "8@name",
    ] {
        let error = Argument::parse(MACHINE, text).unwrap_err();
        assert!(
            error.to_string().ends_with(" is no argument of a probe"),
            "{text}: {error}"
        );
    }
}

fn any_register() -> impl Strategy<Value = Register> {
    (0_u8..32, any::<bool>()).prop_map(|(number, whole)| if whole { x(number) } else { w(number) })
}

fn operand() -> impl Strategy<Value = Operand> {
    let base = || (0_u8..32).prop_map(|number| Base::Register(x(number)));
    let scale = prop_oneof![Just(1_u8), Just(2), Just(4), Just(8)];
    prop_oneof![
        any::<i64>().prop_map(Operand::Constant),
        any_register().prop_map(Operand::Register),
        (base(), any::<i64>()).prop_map(|(base, by)| memory(base, None, by)),
        (base(), (0_u8..31).prop_map(x), scale).prop_map(|(base, index, scale)| memory(
            base,
            Some((index, scale)),
            0
        )),
    ]
}

proptest! {
    /// What is written as the assembler would is read as what it was.
    #[test]
    fn what_is_written_is_read_again(all in prop::collection::vec(argument(operand()), 0..=ARGUMENT_LIMIT)) {
        let words: Vec<String> = all.iter().map(|argument| argument.told(MACHINE)).collect();
        let read = parse_arguments(MACHINE, &words.join(" ")).unwrap();
        let expected: Vec<_> = all.into_iter().map(Ok).collect();
        prop_assert_eq!(read, expected);
    }

    /// Whatever a note says is read or refused, and what is read says so again.
    #[test]
    fn any_words_are_read_or_refused(text in "[-0-9f@#\\[\\],xwsplz: .]{0,60}") {
        for argument in parse_arguments(MACHINE, &text).into_iter().flatten().flatten() {
            prop_assert_eq!(Argument::parse(MACHINE, &argument.told(MACHINE)), Ok(argument));
        }
    }
}
