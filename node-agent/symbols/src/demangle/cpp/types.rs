//! Types, as far as they are part of names.

use super::{Parser, Shape, Text};

impl Parser<'_> {
    /// The parameters of a function, up to an `E` or the symbol's end.
    pub(super) fn parameters(&mut self) -> Option<String> {
        let mut list = Vec::new();
        while !matches!(self.peek(), b'E' | 0) {
            list.push(self.r#type()?.whole());
        }
        if list == ["void"] {
            list.clear();
        }
        Some(list.join(", "))
    }

    /// ` const` and the like.
    pub(super) fn qualifiers(&mut self) -> String {
        let mut text = String::new();
        for (code, word) in [("r", " restrict"), ("V", " volatile"), ("K", " const")] {
            if self.eat(code) {
                text.insert_str(0, word);
            }
        }
        text
    }

    pub(super) fn r#type(&mut self) -> Option<Text> {
        self.deeper(|parser| {
            // What is built in, and what already stands for something, is not numbered again.
            if let Some(text) = parser.builtin() {
                return Some(text);
            }
            let text = match parser.rest {
                [b'S', second, ..] if *second != b't' => {
                    let text = parser.substitution()?;
                    if parser.peek() != b'I' {
                        return Some(text);
                    }
                    parser.instance(text)?.text
                }
                _ => parser.compound()?,
            };
            parser.remember(&text)?;
            Some(text)
        })
    }

    fn builtin(&mut self) -> Option<Text> {
        let mut known = BUILTINS.iter();
        let (code, name) = known.find(|(code, _)| self.rest.starts_with(code.as_bytes()))?;
        self.rest = &self.rest[code.len()..];
        Some(Text::of(*name))
    }

    fn compound(&mut self) -> Option<Text> {
        let [first, rest @ ..] = self.rest else {
            return None;
        };
        match first {
            b'r' | b'V' | b'K' => {
                let qualifiers = self.qualifiers();
                let mut text = self.r#type()?;
                match text.shape {
                    Shape::Function => text.after.push_str(&qualifiers),
                    _ => text.before.push_str(&qualifiers),
                }
                self.checked(text)
            }
            b'P' | b'R' | b'O' => {
                self.rest = rest;
                let mark = match first {
                    b'P' => "*",
                    b'R' => "&",
                    _ => "&&",
                };
                let text = self.r#type()?;
                self.pointer(text, mark)
            }
            b'F' => self.function(),
            b'A' => {
                self.rest = rest;
                let length = self
                    .number()
                    .map_or(String::new(), |length| length.to_string());
                self.expect("_")?;
                let element = self.r#type()?;
                let inner = match element.shape {
                    Shape::Array => element.after.trim_start(),
                    _ => element.after.as_str(),
                };
                self.checked(Text {
                    after: format!(" [{length}]{inner}"),
                    shape: Shape::Array,
                    ..element
                })
            }
            b'M' => {
                self.rest = rest;
                let class = self.r#type()?.whole();
                let member = self.r#type()?;
                match member.shape {
                    Shape::Plain => self.pointer(member, &format!(" {class}::*")),
                    _ => self.pointer(member, &format!("{class}::*")),
                }
            }
            b'T' => {
                let text = self.template_parameter()?;
                if self.peek() != b'I' {
                    return Some(text);
                }
                self.remember(&text)?;
                Some(self.instance(text)?.text)
            }
            b'D' => {
                self.rest = rest.get(1..)?;
                match rest.first()? {
                    // A pack that is expanded: its arguments stand one after the other.
                    b'p' => self.r#type(),
                    b'o' => {
                        let mut text = self.function()?;
                        text.after.push_str(" noexcept");
                        self.checked(text)
                    }
                    _ => None,
                }
            }
            b'u' => {
                self.rest = rest;
                self.source_name().map(Text::of)
            }
            b'0'..=b'9' | b'N' | b'Z' | b'S' => self.name().map(|name| name.text),
            _ => None,
        }
    }

    fn pointer(&mut self, text: Text, mark: &str) -> Option<Text> {
        let (open, close) = match text.shape {
            Shape::Plain => ("", ""),
            Shape::Function => ("(", ")"),
            Shape::Array => (" (", ")"),
        };
        self.checked(Text {
            before: format!("{}{open}{mark}", text.before),
            after: format!("{close}{}", text.after),
            ..Text::default()
        })
    }

    fn function(&mut self) -> Option<Text> {
        self.expect("F")?;
        self.eat("Y");
        let returned = self.r#type()?;
        let mut parameters = Vec::new();
        let mut reference = "";
        while !self.eat("E") {
            match self.rest {
                [b'R', b'E', ..] => reference = " &",
                [b'O', b'E', ..] => reference = " &&",
                _ => {
                    parameters.push(self.r#type()?.whole());
                    continue;
                }
            }
            self.rest = &self.rest[1..];
        }
        if parameters == ["void"] {
            parameters.clear();
        }
        let space = if returned.after.is_empty() { " " } else { "" };
        self.checked(Text {
            before: format!("{}{space}", returned.before),
            after: format!("({}){reference}{}", parameters.join(", "), returned.after),
            shape: Shape::Function,
            ..Text::default()
        })
    }

    /// What a template's parameter stands for.
    pub(super) fn template_parameter(&mut self) -> Option<Text> {
        self.expect("T")?;
        let index = self.ordinal()?;
        if self.is_in_lambda {
            return Some(Text::of(format!("auto:{index}")));
        }
        let text = self.arguments.get(index - 1)?.clone();
        self.checked(text)
    }

    pub(super) fn template_arguments(&mut self) -> Option<Vec<Text>> {
        self.expect("I")?;
        let mut arguments = Vec::new();
        while !self.eat("E") {
            arguments.push(self.deeper(Self::template_argument)?);
        }
        Some(arguments)
    }

    fn template_argument(&mut self) -> Option<Text> {
        match self.peek() {
            b'L' => self.literal(),
            b'X' => {
                self.expect("X")?;
                let text = match self.eat("ad") {
                    true => Text::of(format!("&({})", self.literal()?.before)),
                    false => self.literal()?,
                };
                self.expect("E")?;
                self.checked(text)
            }
            b'J' => {
                self.expect("J")?;
                let mut pack = Vec::new();
                while !self.eat("E") {
                    pack.push(self.deeper(Self::template_argument)?.whole());
                }
                self.checked(Text::of(pack.join(", ")))
            }
            _ => self.r#type(),
        }
    }

    /// A value of a built-in type or of an enumeration, or something that is declared elsewhere.
    fn literal(&mut self) -> Option<Text> {
        self.expect("L")?;
        if self.eat("_Z") {
            let text = self.encoding()?;
            self.expect("E")?;
            return Some(Text::of(text));
        }
        let of_type = self.r#type()?.whole();
        let sign = if self.eat("n") { "-" } else { "" };
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit());
        let (digits, rest) = self.rest.split_at_checked(digits.count())?;
        self.rest = rest;
        self.expect("E")?;
        let value = format!("{sign}{}", std::str::from_utf8(digits).ok()?);
        self.checked(Text::of(match (of_type.as_str(), value.as_str()) {
            ("bool", "0") => "false".to_string(),
            ("bool", "1") => "true".to_string(),
            ("int", _) => value,
            ("unsigned int", _) => format!("{value}u"),
            ("long", _) => format!("{value}l"),
            ("unsigned long", _) => format!("{value}ul"),
            ("long long", _) => format!("{value}ll"),
            ("unsigned long long", _) => format!("{value}ull"),
            _ => format!("({of_type}){value}"),
        }))
    }

    /// `S_` and the like: what was there before, or what is in the standard library.
    pub(super) fn substitution(&mut self) -> Option<Text> {
        self.expect("S")?;
        let code = self.peek();
        if let Some((_, name, written_out)) = STANDARD.iter().find(|(known, ..)| *known == code) {
            self.rest = &self.rest[1..];
            // The constructors and the destructor are those of the template.
            let text = match self.rest {
                [b'C', ..] | [b'D', b'0'..=b'9', ..] => *written_out,
                _ => *name,
            };
            let template = written_out.split('<').next().unwrap_or_default();
            return Some(Text {
                base: template.replace("std::", ""),
                ..Text::of(text)
            });
        }
        let mut index = 0;
        if !self.eat("_") {
            while !self.eat("_") {
                let digit = char::from(self.peek()).to_digit(36)?;
                if self.peek().is_ascii_lowercase() || index > 1 << 16 {
                    return None;
                }
                index = index * 36 + digit as usize;
                self.rest = &self.rest[1..];
            }
            index += 1;
        }
        let text = self.substitutions.get(index)?.clone();
        self.checked(text)
    }
}

/// A template's name with its arguments, as in `operator< <std::vector<int> >`.
pub(super) fn with_arguments(mut name: String, arguments: &[Text]) -> String {
    let list: Vec<String> = arguments
        .iter()
        .map(Text::whole)
        .filter(|text| !text.is_empty())
        .collect();
    let list = list.join(", ");
    let (open, close) = (
        if name.ends_with('<') { " <" } else { "<" },
        if list.ends_with('>') { " >" } else { ">" },
    );
    name.push_str(open);
    name.push_str(&list);
    name.push_str(close);
    name
}

/// Code, name, and what it is short for.
#[rustfmt::skip]
const STANDARD: [(u8, &str, &str); 6] = [
    (b'a', "std::allocator", "std::allocator"),
    (b'b', "std::basic_string", "std::basic_string"),
    (b's', "std::string", "std::basic_string<char, std::char_traits<char>, std::allocator<char> >"),
    (b'i', "std::istream", "std::basic_istream<char, std::char_traits<char> >"),
    (b'o', "std::ostream", "std::basic_ostream<char, std::char_traits<char> >"),
    (b'd', "std::iostream", "std::basic_iostream<char, std::char_traits<char> >"),
];

#[rustfmt::skip]
const BUILTINS: [(&str, &str); 37] = [
    ("v", "void"), ("w", "wchar_t"), ("b", "bool"), ("c", "char"), ("a", "signed char"), ("h", "unsigned char"),
    ("s", "short"), ("t", "unsigned short"), ("i", "int"), ("j", "unsigned int"), ("l", "long"),
    ("m", "unsigned long"), ("x", "long long"), ("y", "unsigned long long"), ("n", "__int128"),
    ("o", "unsigned __int128"), ("f", "float"), ("d", "double"), ("e", "long double"), ("g", "__float128"),
    ("z", "..."), ("Dn", "decltype(nullptr)"), ("Di", "char32_t"), ("Ds", "char16_t"), ("Du", "char8_t"),
    ("Da", "auto"), ("Dc", "decltype(auto)"), ("Dd", "decimal64"), ("De", "decimal128"), ("Df", "decimal32"),
    ("Dh", "half"), ("DF16_", "_Float16"), ("DF32_", "_Float32"), ("DF64_", "_Float64"), ("DF128_", "_Float128"),
    ("DF16b", "std::bfloat16_t"), ("DF32x", "_Float32x"),
];
