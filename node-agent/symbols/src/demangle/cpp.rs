//! The names of C++ functions, by the Itanium C++ ABI's grammar of symbols, as `c++filt -p` prints them.
//!
//! Every production is told by what it begins with, so that a symbol is read once from its begin to its end. A name stands
//! before the function's return type and parameters, which are not read. Of the expressions that template arguments may be, only
//! literals and addresses of functions are known: a name with another one is not read at all.

mod added;
mod types;

pub use added::name as added;

use super::SYMBOL_LIMIT;

/// Real names nest ten deep.
const DEPTH_LIMIT: usize = 64;

/// Nothing inside a name is longer.
const TEXT_LIMIT: usize = 2 * SYMBOL_LIMIT;

/// So many bytes are put together for a name. The longest real ones take a third.
const WORK_LIMIT: usize = 128 << 10;

/// What a function is called.
pub fn name(symbol: &str) -> Option<String> {
    let mut parser = Parser::of(symbol.strip_prefix("_Z")?);
    let name = parser.name()?.text.before;
    (name.len() <= SYMBOL_LIMIT).then_some(name)
}

struct Parser<'a> {
    rest: &'a [u8],
    depth: usize,
    work: usize,
    /// What `S_`, `S0_`, … stand for.
    substitutions: Vec<Text>,
    /// What `T_`, `T0_`, … stand for.
    arguments: Vec<Text>,
    is_in_lambda: bool,
}

/// A type or a name. C's declarators surround what they declare: of a pointer to a function, `void (*` comes before it and
/// `)(int)` after it.
#[derive(Clone, Debug, Default)]
struct Text {
    before: String,
    after: String,
    /// Of a class: what its constructors are called.
    base: String,
    shape: Shape,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Shape {
    #[default]
    Plain,
    Function,
    Array,
}

/// The name of a function or of a class.
#[derive(Default)]
struct Name {
    text: Text,
    /// ` const` and the like, of a member function.
    qualifiers: String,
    /// It ends in template arguments: these.
    arguments: Option<Vec<Text>>,
    /// A constructor, destructor or conversion: even as a template it has no return type.
    returns_nothing: bool,
}

impl Text {
    fn of(before: impl Into<String>) -> Self {
        Self {
            before: before.into(),
            ..Self::default()
        }
    }

    fn whole(&self) -> String {
        format!("{}{}", self.before, self.after)
    }
}

impl<'a> Parser<'a> {
    fn of(rest: &'a str) -> Self {
        Self {
            rest: rest.as_bytes(),
            depth: 0,
            work: 0,
            substitutions: Vec::new(),
            arguments: Vec::new(),
            is_in_lambda: false,
        }
    }
}

impl Parser<'_> {
    fn peek(&self) -> u8 {
        self.rest.first().copied().unwrap_or_default()
    }

    fn eat(&mut self, token: &str) -> bool {
        let rest = self.rest.strip_prefix(token.as_bytes());
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, token: &str) -> Option<()> {
        self.eat(token).then_some(())
    }

    /// Counts what is put together, and refuses what is too long.
    fn checked(&mut self, text: Text) -> Option<Text> {
        let length = text.before.len() + text.after.len() + text.base.len();
        self.work += length;
        (length <= TEXT_LIMIT && self.work <= WORK_LIMIT).then_some(text)
    }

    fn remember(&mut self, text: &Text) -> Option<()> {
        let text = self.checked(text.clone())?;
        self.substitutions.push(text);
        Some(())
    }

    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.depth += 1;
        self.work += 1;
        if self.depth > DEPTH_LIMIT || self.work > WORK_LIMIT {
            return None;
        }
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    /// A function with its parameters, or a variable.
    fn encoding(&mut self) -> Option<String> {
        let name = self.name()?;
        let has_return_type = name.arguments.is_some() && !name.returns_nothing;
        self.arguments = name.arguments.unwrap_or_default();
        if matches!(self.peek(), b'E' | 0) {
            return Some(name.text.before);
        }
        if has_return_type {
            self.r#type()?;
        }
        let parameters = self.parameters()?;
        let text = format!("{}({parameters}){}", name.text.before, name.qualifiers);
        self.checked(Text::of(text)).map(|text| text.before)
    }

    fn name(&mut self) -> Option<Name> {
        self.deeper(|parser| match parser.rest {
            [b'N', ..] => parser.nested_name(),
            [b'Z', ..] => parser.local_name(),
            [b'S', second, ..] if *second != b't' => {
                let text = parser.substitution()?;
                parser.instance(text)
            }
            _ => parser.unscoped_name(),
        })
    }

    fn unscoped_name(&mut self) -> Option<Name> {
        let scope = if self.eat("St") { "std::" } else { "" };
        let (mut text, returns_nothing) = self.unqualified_name("")?;
        text.before.insert_str(0, scope);
        let name = if self.peek() == b'I' {
            self.remember(&text)?;
            self.instance(text)?
        } else {
            Name {
                text,
                ..Name::default()
            }
        };
        Some(Name {
            returns_nothing,
            ..name
        })
    }

    /// Template arguments after the name of a template.
    fn instance(&mut self, mut text: Text) -> Option<Name> {
        let arguments = self.template_arguments()?;
        text.before = types::with_arguments(text.before, &arguments);
        Some(Name {
            text: self.checked(text)?,
            arguments: Some(arguments),
            ..Name::default()
        })
    }

    fn nested_name(&mut self) -> Option<Name> {
        self.expect("N")?;
        self.eat("H");
        let mut name = Name {
            qualifiers: self.qualifiers(),
            ..Name::default()
        };
        name.qualifiers.push_str(match self.peek() {
            b'R' => " &",
            b'O' => " &&",
            _ => "",
        });
        let _ = self.eat("R") || self.eat("O");
        // Whether what there is so far is new: once it is the scope of something, it can be referred to.
        let mut is_new = false;
        while !self.eat("E") {
            let is_first = name.text.before.is_empty();
            match self.rest {
                [b'M', ..] if !is_first => {
                    self.expect("M")?;
                    continue;
                }
                [b'S', b't', ..] if is_first => {
                    self.expect("St")?;
                    name.text = Text::of("std");
                    continue;
                }
                [b'S', ..] if is_first => {
                    name.text = self.substitution()?;
                    continue;
                }
                [b'T', ..] if is_first => name.text = self.template_parameter()?,
                [b'I', ..] if !is_first => {
                    if is_new {
                        self.remember(&name.text)?;
                    }
                    let instance = self.instance(name.text)?;
                    name.text = instance.text;
                    name.arguments = instance.arguments;
                }
                _ => {
                    if is_new {
                        self.remember(&name.text)?;
                    }
                    let (part, returns_nothing) = self.unqualified_name(&name.text.base)?;
                    let scope = if is_first { "" } else { "::" };
                    let text = Text {
                        before: format!("{}{scope}{}", name.text.before, part.before),
                        ..part
                    };
                    name.text = self.checked(text)?;
                    name.arguments = None;
                    name.returns_nothing = returns_nothing;
                }
            }
            is_new = true;
        }
        (!name.text.before.is_empty()).then_some(name)
    }

    /// What is declared inside a function.
    fn local_name(&mut self) -> Option<Name> {
        self.expect("Z")?;
        let mut scope = self.encoding()?;
        self.expect("E")?;
        if self.eat("d") {
            let number = self.number().map_or(1, |number| number + 2);
            self.expect("_")?;
            scope.push_str(&format!("::{{default arg#{number}}}"));
        }
        let mut name = self.name()?;
        // Which one of several with the same name.
        if self.eat("__") {
            self.number()?;
            self.expect("_")?;
        } else if self.eat("_") {
            self.rest = self.rest.strip_prefix(&[self.digit()?])?;
        }
        name.text.before = format!("{scope}::{}", name.text.before);
        name.text = self.checked(name.text)?;
        Some(name)
    }

    /// One part of a name, and whether it is one of the functions that return nothing. `class` is what a constructor is called.
    fn unqualified_name(&mut self, class: &str) -> Option<(Text, bool)> {
        self.eat("L");
        let (mut text, returns_nothing) = match self.rest {
            [b'0'..=b'9', ..] => (self.source_name()?, false),
            [b'U', b'l', ..] => (self.lambda()?, false),
            [b'U', b't', ..] => {
                self.expect("Ut")?;
                (format!("{{unnamed type#{}}}", self.ordinal()?), false)
            }
            [b'C', ..] if !class.is_empty() => {
                self.expect("C")?;
                let inherits = self.eat("I");
                self.rest = self.rest.strip_prefix(&[self.digit()?])?;
                if inherits {
                    self.r#type()?;
                }
                (class.to_string(), true)
            }
            [b'D', b'0'..=b'9', rest @ ..] if !class.is_empty() => {
                self.rest = rest;
                (format!("~{class}"), true)
            }
            [b'c', b'v', rest @ ..] => {
                self.rest = rest;
                (format!("operator {}", self.r#type()?.whole()), true)
            }
            [b'l', b'i', rest @ ..] => {
                self.rest = rest;
                (format!("operator\"\" {}", self.source_name()?), false)
            }
            _ => (format!("operator{}", self.operator()?), false),
        };
        let base = text.clone();
        while self.eat("B") {
            text.push_str(&format!("[abi:{}]", self.source_name()?));
        }
        let text = self.checked(Text {
            base,
            ..Text::of(text)
        })?;
        Some((text, returns_nothing))
    }

    fn lambda(&mut self) -> Option<String> {
        self.expect("Ul")?;
        let was_in_lambda = std::mem::replace(&mut self.is_in_lambda, true);
        let parameters = self.parameters()?;
        self.is_in_lambda = was_in_lambda;
        self.expect("E")?;
        Some(format!("{{lambda({parameters})#{}}}", self.ordinal()?))
    }

    /// `_` is the first, `0_` the second.
    fn ordinal(&mut self) -> Option<usize> {
        let ordinal = match self.peek() {
            b'_' => 1,
            _ => self.number()?.checked_add(2)?,
        };
        self.expect("_").map(|()| ordinal)
    }

    fn digit(&self) -> Option<u8> {
        Some(self.peek()).filter(u8::is_ascii_digit)
    }

    /// A number of some thousands at most: whatever it counts lies within the symbol.
    fn number(&mut self) -> Option<usize> {
        let mut number = self.digit().map(|_| 0);
        while let Some(digit) = self.digit() {
            let next = number? * 10 + usize::from(digit - b'0');
            number = (next <= 1 << 16).then_some(next);
            self.rest = &self.rest[1..];
            number?;
        }
        number
    }

    fn source_name(&mut self) -> Option<String> {
        let length = self.number()?;
        let (name, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        if let [
            b'_',
            b'G',
            b'L',
            b'O',
            b'B',
            b'A',
            b'L',
            b'_',
            b'_' | b'.' | b'$',
            b'N',
            ..,
        ] = name
        {
            return Some("(anonymous namespace)".to_string());
        }
        // The symbol is a string: only a wrong length can cut it inside of a character.
        let name = std::str::from_utf8(name).ok()?;
        (!name.is_empty()).then(|| name.to_string())
    }

    fn operator(&mut self) -> Option<&'static str> {
        let code = std::str::from_utf8(self.rest.get(..2)?).ok()?;
        let (_, operator) = OPERATORS.iter().find(|(known, _)| *known == code)?;
        self.rest = &self.rest[2..];
        Some(operator)
    }
}

#[rustfmt::skip]
const OPERATORS: [(&str, &str); 50] = [
    ("nw", " new"), ("na", " new[]"), ("dl", " delete"), ("da", " delete[]"), ("aw", " co_await"),
    ("ps", "+"), ("ng", "-"), ("ad", "&"), ("de", "*"), ("co", "~"), ("pl", "+"), ("mi", "-"), ("ml", "*"),
    ("dv", "/"), ("rm", "%"), ("an", "&"), ("or", "|"), ("eo", "^"), ("aS", "="), ("pL", "+="), ("mI", "-="),
    ("mL", "*="), ("dV", "/="), ("rM", "%="), ("aN", "&="), ("oR", "|="), ("eO", "^="), ("ls", "<<"), ("rs", ">>"),
    ("lS", "<<="), ("rS", ">>="), ("eq", "=="), ("ne", "!="), ("lt", "<"), ("gt", ">"), ("le", "<="), ("ge", ">="),
    ("ss", "<=>"), ("nt", "!"), ("aa", "&&"), ("oo", "||"), ("pp", "++"), ("mm", "--"), ("cm", ","), ("pm", "->*"),
    ("pt", "->"), ("cl", "()"), ("ix", "[]"), ("qu", "?"), ("dX", "[...]="),
];
