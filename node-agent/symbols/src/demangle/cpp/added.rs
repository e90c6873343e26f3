//! Functions that no source has, and that a compiler adds to one or to a variable.

use super::{Parser, SYMBOL_LIMIT};

/// What one is called: what it was added to, and in braces what for. `symbol` begins with `_ZT`.
pub fn name(symbol: &str) -> Option<String> {
    let mut parser = Parser::of(symbol.strip_prefix("_ZT")?);
    let what = match parser.peek() {
        b'h' | b'v' => {
            parser.call_offset()?;
            "thunk"
        }
        b'c' => {
            parser.expect("c")?;
            parser.call_offset()?;
            parser.call_offset()?;
            "thunk"
        }
        b'W' => {
            parser.expect("W")?;
            "thread-local"
        }
        b'H' => {
            parser.expect("H")?;
            "thread-local init"
        }
        // Tables of virtual functions, what types are at run time: data.
        _ => return None,
    };
    let name = format!("{}{{{what}}}", parser.name()?.text.before);
    (name.len() <= SYMBOL_LIMIT).then_some(name)
}

impl Parser<'_> {
    /// By how much a thunk moves `this`: `h` and a number, or `v` and two.
    fn call_offset(&mut self) -> Option<()> {
        let numbers = if self.eat("h") { 1 } else { 2 };
        if numbers == 2 {
            self.expect("v")?;
        }
        for _ in 0..numbers {
            self.eat("n");
            // In bytes of an object: it may be a large one.
            let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit());
            let digits = digits.count();
            self.rest = &self.rest[digits..];
            (digits > 0).then_some(())?;
            self.expect("_")?;
        }
        Some(())
    }
}
