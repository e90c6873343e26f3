//! Arguments as compilers write them, as nobody does, and any that there can be.

mod aarch64;

use proptest::prelude::*;

use super::*;

fn register(name: &str) -> Register {
    Register::named(name).unwrap()
}

fn memory(base: Base, index: Option<(Register, u8)>, displacement: i64) -> Operand {
    Operand::Memory {
        base,
        index,
        displacement,
    }
}

#[test]
fn what_real_programs_have_is_understood() {
    let at = |name| Base::Register(register(name));
    let symbol = |name: &str| Base::Symbol(name.to_string());
    // PostgreSQL 15, Python 3.11 and libstdc++ of Debian 12, and what `sys/sdt.h` documents.
    let all = [
        ("8@%rax", 8, false, Operand::Register(register("rax"))),
        ("4@%r14d", 4, false, Operand::Register(register("r14d"))),
        ("1@%dil", 1, false, Operand::Register(register("dil"))),
        ("1@%al", 1, false, Operand::Register(register("al"))),
        ("1@%ah", 1, false, Operand::Register(register("ah"))),
        ("2@%r8w", 2, false, Operand::Register(register("r8w"))),
        ("-4@$1", 4, true, Operand::Constant(1)),
        ("-4@$8192", 4, true, Operand::Constant(8192)),
        ("-8@$-1", 8, true, Operand::Constant(-1)),
        ("8@$0xffffffffffffffff", 8, false, Operand::Constant(-1)),
        ("4@(%r12)", 4, false, memory(at("r12"), None, 0)),
        ("4@0(%r13)", 4, false, memory(at("r13"), None, 0)),
        ("2@12(%r12)", 2, false, memory(at("r12"), None, 12)),
        ("1@-149(%rbp)", 1, false, memory(at("rbp"), None, -149)),
        ("-4@112(%rsp)", 4, true, memory(at("rsp"), None, 112)),
        ("8@0x10(%rax)", 8, false, memory(at("rax"), None, 16)),
        (
            "8@-8(%rax,%rbx,8)",
            8,
            false,
            memory(at("rax"), Some((register("rbx"), 8)), -8),
        ),
        (
            "8@( %rax, %rbx )",
            8,
            false,
            memory(at("rax"), Some((register("rbx"), 1)), 0),
        ),
        (
            "4@16(,%rcx,4)",
            4,
            false,
            memory(Base::Zero, Some((register("rcx"), 4)), 16),
        ),
        (
            "-4@NBuffers(%rip)",
            4,
            true,
            memory(symbol("NBuffers"), None, 0),
        ),
        (
            "-4@40+CheckpointStats(%rip)",
            4,
            true,
            memory(symbol("CheckpointStats"), None, 40),
        ),
        (
            "-4@CheckpointStats+40-8(%rip)",
            4,
            true,
            memory(symbol("CheckpointStats"), None, 32),
        ),
        ("8@counter", 8, false, memory(symbol("counter"), None, 0)),
        (
            "8@table(,%rax,8)",
            8,
            false,
            memory(symbol("table"), Some((register("rax"), 8)), 0),
        ),
        ("%rdi", 8, false, Operand::Register(register("rdi"))),
    ];
    for (text, bytes, is_signed, operand) in all {
        let argument = Argument {
            bytes,
            is_signed,
            operand,
        };
        assert_eq!(
            Argument::parse(Machine::X86_64, text),
            Ok(argument),
            "{text}"
        );
    }
}

#[test]
fn what_is_not_understood_is_refused_with_a_sentence() {
    let all = [
        (
            "8f@%xmm0",
            "\"8f@%xmm0\" is a floating-point number, which is not read",
        ),
        (
            "8@%xmm15",
            "\"8@%xmm15\" is a floating-point number, which is not read",
        ),
        (
            "4@%fs:16",
            "\"4@%fs:16\" is a thread-local variable, whose address is not known",
        ),
        (
            "4@%fs:counter@TPOFF",
            "\"4@%fs:counter@TPOFF\" is a thread-local variable, whose address is not known",
        ),
        (
            "4@fs:(%rax)",
            "\"4@fs:(%rax)\" is a thread-local variable, whose address is not known",
        ),
        (
            "8@x@GOTPCREL(%rip)",
            "\"8@x@GOTPCREL(%rip)\" is found by way of the global offset table, which is not read",
        ),
        (
            "8@x@TLSGD(%rip)",
            "\"8@x@TLSGD(%rip)\" is a thread-local variable, whose address is not known",
        ),
        (
            "8@$message",
            "\"8@$message\" is an address that is not known before the program is loaded",
        ),
        (
            "3@%rax",
            "\"3@%rax\" has a size that is not 1, 2, 4 or 8 bytes",
        ),
        (
            "-16@%rax",
            "\"-16@%rax\" has a size that is not 1, 2, 4 or 8 bytes",
        ),
    ];
    for (text, sentence) in all {
        assert_eq!(
            Argument::parse(Machine::X86_64, text)
                .unwrap_err()
                .to_string(),
            sentence,
            "{text}"
        );
    }
    for text in [
        "8@",
        "8@$",
        "8@%",
        "8@%rip",
        "8@%rax1",
        "8@16",
        "8@(%rip)",
        "8@16(%rip)",
        "8@(%rax",
        "8@%rax)",
        "8@()",
        "8@(,)",
        "8@(%ax)",
        "8@(%rax,%rsp,2)",
        "8@(%rax,%rbx,3)",
        "8@(%rax,%rbx,8,1)",
        "8@(%rip,%rax,8)",
        "8@a+b(%rip)",
        "8@-a(%rip)",
        "8@a(%rax)",
        "8@9999999999999999999999(%rax)",
        "8@0x(%rax)",
        "8@--1(%rax)",
        "@%rax",
        "8@@%rax",
    ] {
        let error = Argument::parse(Machine::X86_64, text).unwrap_err();
        assert!(
            error.to_string().ends_with(" is no argument of a probe"),
            "{text}: {error}"
        );
    }
}

#[test]
fn each_argument_of_a_note_is_read_by_itself() {
    let read = parse_arguments(Machine::X86_64, " 8@%rax  4@%xmm1 8@(%rax, %rbx, 8)").unwrap();
    assert_eq!(read.len(), 3);
    assert!(read[0].is_ok() && read[2].is_ok());
    assert_eq!(
        read[1],
        Err(ArgumentError::FloatingPoint("4@%xmm1".to_string()))
    );
    assert_eq!(parse_arguments(Machine::X86_64, "").unwrap(), []);
    assert_eq!(
        parse_arguments(Machine::X86_64, &"1@$1 ".repeat(12))
            .unwrap()
            .len(),
        12
    );
    assert_eq!(parse_arguments(Machine::X86_64, &"1@$1 ".repeat(13)), None);
}

#[test]
fn a_symbol_is_told_by_how_far_it_is_from_the_probe() {
    let argument = Argument::parse(Machine::X86_64, "-4@40+CheckpointStats(%rip)").unwrap();
    assert_eq!(argument.symbol(), Some("CheckpointStats"));
    let found = argument.clone().resolved(0x1000, |name| {
        assert_eq!(name, "CheckpointStats");
        Ok(0x800)
    });
    assert_eq!(found.unwrap().operand, memory(Base::Site, None, 40 - 0x800));
    let missing = argument.resolved(0x1000, |name| {
        Err(ArgumentError::NoSymbol(name.to_string()))
    });
    assert_eq!(
        missing.unwrap_err().to_string(),
        "no symbol table of the file has \"CheckpointStats\", of which the argument is"
    );
    let plain = Argument::parse(Machine::X86_64, "8@%rax").unwrap();
    assert_eq!(plain.clone().resolved(1, |_| unreachable!()), Ok(plain));
}

fn any_register(bytes: impl Strategy<Value = u8>) -> impl Strategy<Value = Register> {
    (0_u8..16, bytes).prop_map(|(number, bytes)| Register {
        number,
        bytes,
        is_second_byte: false,
    })
}

fn second_byte() -> impl Strategy<Value = Register> {
    (0_u8..4).prop_map(|number| Register {
        number,
        bytes: 1,
        is_second_byte: true,
    })
}

fn of_address() -> impl Strategy<Value = Register> {
    any_register(prop_oneof![Just(4), Just(8)])
}

fn index() -> impl Strategy<Value = (Register, u8)> {
    let scale = prop_oneof![Just(1), Just(2), Just(4), Just(8)];
    (of_address(), scale).prop_filter("is none", |(register, _)| register.number != 4)
}

fn operand() -> impl Strategy<Value = Operand> {
    let widths = prop_oneof![Just(1), Just(2), Just(4), Just(8)];
    let symbol = "[A-Za-z_.][A-Za-z0-9_.]{0,30}".prop_map(Base::Symbol);
    let base = of_address().prop_map(Base::Register);
    let base = prop_oneof![base, symbol.clone()];
    prop_oneof![
        any::<i64>().prop_map(Operand::Constant),
        any_register(widths).prop_map(Operand::Register),
        second_byte().prop_map(Operand::Register),
        (base, any::<i32>()).prop_map(|(base, by)| memory(base, None, by.into())),
        (of_address(), index(), any::<i32>())
            .prop_map(|(base, index, by)| { memory(Base::Register(base), Some(index), by.into()) }),
        (prop_oneof![Just(Base::Zero), symbol], index(), any::<i32>())
            .prop_map(|(base, index, by)| memory(base, Some(index), by.into())),
    ]
}

fn argument(operand: impl Strategy<Value = Operand>) -> impl Strategy<Value = Argument> {
    let bytes = prop_oneof![Just(1), Just(2), Just(4), Just(8)];
    (bytes, any::<bool>(), operand).prop_map(|(bytes, is_signed, operand)| Argument {
        bytes,
        is_signed,
        operand,
    })
}

proptest! {
    /// What is written as the assembler would is read as what it was.
    #[test]
    fn what_is_written_is_read_again(all in prop::collection::vec(argument(operand()), 0..=ARGUMENT_LIMIT)) {
        let words: Vec<String> = all.iter().map(ToString::to_string).collect();
        let read = parse_arguments(Machine::X86_64, &words.join(" ")).unwrap();
        let expected: Vec<_> = all.into_iter().map(Ok).collect();
        prop_assert_eq!(read, expected);
    }

    /// Whatever a note says is read or refused, and what is read says so again.
    #[test]
    fn any_words_are_read_or_refused(text in "[-0-9f@%$(),+a-zA-Z: .]{0,60}") {
        for argument in parse_arguments(Machine::X86_64, &text).into_iter().flatten().flatten() {
            prop_assert_eq!(Argument::parse(Machine::X86_64, &argument.to_string()), Ok(argument));
        }
    }
}
