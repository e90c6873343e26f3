//! The script: a loop that calculates and goes through a megabyte of memory, assembled here.

/// Where it is loaded to.
const CODE: u64 = 0x1_0000;

/// Where its code begins in the file: at a page.
const OFFSET: usize = 0x1000;

/// Rounds, and the first byte of the memory that it goes through, each in pages.
const ROUNDS: u32 = 0x100;
const MEMORY: u32 = 0x200;

const ZERO: u32 = 0;
const T0: u32 = 5;
const T1: u32 = 6;
const T2: u32 = 7;
const S0: u32 = 8;
const S1: u32 = 9;
const S2: u32 = 18;
const A0: u32 = 10;
const A7: u32 = 17;

/// The system call by which a script ends.
const EXIT: i32 = 93;

fn lui(to: u32, pages: u32) -> u32 {
    pages << 12 | to << 7 | 0x37
}

fn addi(to: u32, from: u32, number: i32) -> u32 {
    number.cast_unsigned() << 20 | from << 15 | to << 7 | 0x13
}

/// `group` and `kind` are what RISC-V calls funct7 and funct3.
fn calculate(group: u32, kind: u32, to: u32, one: u32, other: u32) -> u32 {
    group << 25 | other << 20 | one << 15 | kind << 12 | to << 7 | 0x33
}

fn store(word: u32, place: u32) -> u32 {
    word << 20 | place << 15 | 3 << 12 | 0x23
}

fn load(to: u32, place: u32) -> u32 {
    place << 15 | 3 << 12 | to << 7 | 0x03
}

/// Goes so many bytes on where a register is not zero.
fn jump_unless_zero(register: u32, bytes: i32) -> u32 {
    let offset = bytes.cast_unsigned();
    let bits = |from: u32, count: u32| offset >> from & ((1 << count) - 1);
    bits(12, 1) << 31
        | bits(5, 6) << 25
        | ZERO << 20
        | register << 15
        | 1 << 12
        | bits(1, 4) << 8
        | bits(11, 1) << 7
        | 0x63
}

fn instructions(times: i32) -> Vec<u32> {
    let (add, multiply, divide, xor) = ((0, 0), (1, 0), (1, 5), (0, 4));
    let calculate = |(group, kind), to, one, other| calculate(group, kind, to, one, other);
    let body = [
        calculate(add, T0, S0, S1),
        store(S1, T0),
        load(T1, T0),
        calculate(multiply, T2, T1, S1),
        calculate(divide, T2, T2, T1),
        calculate(xor, A0, A0, T2),
        addi(S1, S1, -1),
    ];
    let back = -4 * i32::try_from(body.len()).unwrap_or(0);
    let mut all = vec![addi(S2, ZERO, times), lui(S0, MEMORY), lui(S1, ROUNDS)];
    all.extend(body);
    all.extend([
        jump_unless_zero(S1, back),
        addi(S2, S2, -1),
        // To where S1 is set.
        jump_unless_zero(S2, back - 4 * 3),
        addi(A7, ZERO, EXIT),
        addi(A0, ZERO, 0),
        0x73,
    ]);
    all
}

/// It, as CKB-VM loads it, going through its loop so many times, at most 2,047.
pub fn elf(times: i32) -> Vec<u8> {
    let code: Vec<u8> = instructions(times)
        .iter()
        .flat_map(|one| one.to_le_bytes())
        .collect();
    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0];
    file.resize(16, 0);
    let mut put = |bytes: &[u8]| file.extend_from_slice(bytes);
    // An executable of RISC-V, with one segment and no sections.
    put(&2_u16.to_le_bytes());
    put(&243_u16.to_le_bytes());
    put(&1_u32.to_le_bytes());
    put(&CODE.to_le_bytes());
    put(&64_u64.to_le_bytes());
    put(&0_u64.to_le_bytes());
    put(&0_u32.to_le_bytes());
    for half in [64_u16, 56, 1, 64, 0, 0] {
        put(&half.to_le_bytes());
    }
    // Loaded to be read and executed.
    put(&1_u32.to_le_bytes());
    put(&5_u32.to_le_bytes());
    let size = code.len() as u64;
    for word in [OFFSET as u64, CODE, CODE, size, size, 0x1000] {
        put(&word.to_le_bytes());
    }
    file.resize(OFFSET, 0);
    file.extend(code);
    file
}
