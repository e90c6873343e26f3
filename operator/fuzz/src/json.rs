//! JSON that is a little different from what it was: the fuzzer's own changes, of bytes, would nearly all make it none.

use serde_json::{Map, Value, json};

/// Numbers from a seed (xorshift64*): the same each time.
pub struct Dice(u64);

impl Dice {
    /// Those of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// One below this; 0 where that is 0.
    pub fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        number.checked_rem(most as u64).unwrap_or_default() as usize
    }
}

/// The JSON with one to four changes, somewhere in it; None where it is none.
pub fn changed(text: &[u8], seed: u64) -> Option<Vec<u8>> {
    let mut value: Value = serde_json::from_slice(text).ok()?;
    let mut dice = Dice::new(seed);
    for _ in 0..=dice.below(4) {
        let other = somewhere(&value.clone(), &mut dice);
        change(&mut value, other, &mut dice);
    }
    serde_json::to_vec(&value).ok()
}

/// A value out of it.
fn somewhere(value: &Value, dice: &mut Dice) -> Value {
    let inner = match value {
        Value::Array(all) => all.get(dice.below(all.len())),
        Value::Object(all) => all.values().nth(dice.below(all.len())),
        _ => None,
    };
    match inner {
        Some(inner) if dice.below(4) > 0 => somewhere(inner, dice),
        _ => value.clone(),
    }
}

/// Goes down to some place, and changes what is there.
fn change(value: &mut Value, other: Value, dice: &mut Dice) {
    let here = dice.below(6) == 0;
    match value {
        Value::Array(all) if !here && !all.is_empty() => {
            let place = dice.below(all.len());
            match dice.below(12) {
                0 => drop(all.remove(place)),
                1 => all.insert(place, other),
                2 => {
                    let again = all[place].clone();
                    all.resize(all.len() + dice.below(70), again);
                }
                _ => change(&mut all[place], other, dice),
            }
        }
        Value::Object(all) if !here && !all.is_empty() => {
            let key = all.keys().nth(dice.below(all.len())).cloned();
            let key = key.unwrap_or_default();
            match dice.below(12) {
                0 => drop(all.remove(&key)),
                1 => drop(all.insert(word(dice), other)),
                2 => rename(all, &key, dice),
                _ => change(all.entry(key).or_insert(Value::Null), other, dice),
            }
        }
        // What is written as text within it, such as rows.
        Value::String(text) if !here && text.starts_with(['[', '{']) => {
            if let Ok(mut inner) = serde_json::from_str(text) {
                change(&mut inner, other, dice);
                *text = inner.to_string();
            }
        }
        _ => *value = another(value, other, dice),
    }
}

fn rename(all: &mut Map<String, Value>, key: &str, dice: &mut Dice) {
    if let Some(value) = all.remove(key) {
        all.insert(word(dice), value);
    }
}

fn word(dice: &mut Dice) -> String {
    const WORDS: &[&str] = &[
        "",
        "a",
        "In",
        "NotIn",
        "Exists",
        "duration",
        "bytes",
        "slow",
        "errors",
        "other",
        "rocksdb",
        "functions",
        "profile",
        "tcp",
        "processes",
        "Firing",
        "Attached",
        "Failed",
        "notable",
        "1ns",
        "1h",
        "0s",
        "99999999999999h",
        "\u{1b}[2J",
        "\u{202e}",
        "..",
        "/",
        "119:60,40",
        "0:18446744073709551615",
        "18446744073709551615:1",
    ];
    WORDS[dice.below(WORDS.len())].to_string()
}

fn another(value: &Value, other: Value, dice: &mut Dice) -> Value {
    const NUMBERS: &[u64] = &[
        0,
        1,
        2,
        63,
        64,
        65,
        1 << 31,
        1 << 32,
        1 << 53,
        1 << 62,
        i64::MAX as u64,
        u64::MAX,
    ];
    match dice.below(10) {
        0 => Value::Null,
        1 => other,
        2 => json!(word(dice)),
        3 => json!(-1),
        4 => json!(1e300),
        5 => json!("x".repeat(1 << dice.below(12))),
        6 => json!([value]),
        7 => match value {
            Value::String(text) => json!(text.chars().rev().collect::<String>()),
            Value::Bool(so) => json!(!so),
            _ => json!({}),
        },
        _ => json!(NUMBERS[dice.below(NUMBERS.len())]),
    }
}
