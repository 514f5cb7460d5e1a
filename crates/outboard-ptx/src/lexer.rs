//! From text to tokens. Comments and white space vanish; each token keeps its line.

use crate::error::{Error, ErrorKind, excerpt};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Token<'s> {
    /// `add`, `%r1`, `$L__BB0_2`, `_Z3fooPi`, `_`.
    Ident(&'s str),
    /// A dot and the word behind it, without the dot: `.global`, `.shared::cta`, `.3d`.
    Dot(&'s str),
    /// An integer literal; negative numbers are a minus and a literal.
    Int(u64),
    /// `0fXXXXXXXX`
    F32(u32),
    /// `0dXXXXXXXXXXXXXXXX` and decimal literals
    F64(u64),
    Str(&'s str),
    /// Any other single character.
    Punct(char),
    /// `<<`, `>>`, `<=`, `>=`, `==`, `!=`, `&&`, `||`
    Punct2([u8; 2]),
    End,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Lexed<'s> {
    pub(crate) token: Token<'s>,
    pub(crate) line: u32,
}

/// All tokens of `text`, with a final `End`.
pub(crate) fn lex(text: &str) -> Result<Vec<Lexed<'_>>, Error> {
    let mut lexer = Lexer { text, bytes: text.as_bytes(), at: 0, line: 1 };
    // A token takes about five characters in compiler output; the guess only saves growing.
    let mut tokens = Vec::with_capacity(text.len() / 5 + 1);
    loop {
        lexer.skip_blank()?;
        let line = lexer.line;
        let token = lexer.next()?;
        tokens.push(Lexed { token, line });
        if token == Token::End {
            return Ok(tokens);
        }
    }
}

struct Lexer<'s> {
    text: &'s str,
    bytes: &'s [u8],
    at: usize,
    line: u32,
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$'
}

impl<'s> Lexer<'s> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn error(&self, message: String) -> Error {
        ErrorKind::Syntax(message).at(self.line)
    }

    fn skip_blank(&mut self) -> Result<(), Error> {
        loop {
            match self.peek(0) {
                b'\n' => {
                    self.line = self.line.saturating_add(1);
                    self.at += 1;
                }
                b' ' | b'\t' | b'\r' | 0x0b | 0x0c => self.at += 1,
                b'/' if self.peek(1) == b'/' => self.skip_line(),
                // Directives for the C preprocessor: line markers.
                b'#' => self.skip_line(),
                b'/' if self.peek(1) == b'*' => {
                    let start = self.line;
                    self.at += 2;
                    while !(self.peek(0) == b'*' && self.peek(1) == b'/') {
                        if self.at >= self.bytes.len() {
                            return Err(ErrorKind::Syntax("a comment has no end".into()).at(start));
                        }
                        if self.peek(0) == b'\n' {
                            self.line = self.line.saturating_add(1);
                        }
                        self.at += 1;
                    }
                    self.at += 2;
                }
                _ => return Ok(()),
            }
        }
    }

    fn skip_line(&mut self) {
        while self.at < self.bytes.len() && self.bytes[self.at] != b'\n' {
            self.at += 1;
        }
    }

    fn take_while(&mut self, accept: impl Fn(u8) -> bool) -> &'s str {
        let start = self.at;
        while self.at < self.bytes.len() && accept(self.bytes[self.at]) {
            self.at += 1;
        }
        // All accepted bytes are ASCII, so both ends are character boundaries.
        self.text.get(start..self.at).unwrap_or("")
    }

    fn next(&mut self) -> Result<Token<'s>, Error> {
        if self.at >= self.bytes.len() {
            return Ok(Token::End);
        }
        let first = self.peek(0);
        let second = self.peek(1);
        match first {
            b'0'..=b'9' => self.number(),
            b'.' if second.is_ascii_digit() && !self.dot_word_follows() => self.number(),
            b'.' if is_word(second) => {
                let start = self.at + 1;
                self.at += 1;
                self.take_while(is_word);
                while self.peek(0) == b':' && self.peek(1) == b':' && is_word(self.peek(2)) {
                    self.at += 2;
                    self.take_while(is_word);
                }
                Ok(Token::Dot(self.text.get(start..self.at).unwrap_or("")))
            }
            b'%' if is_word(second) => {
                let start = self.at;
                self.at += 1;
                self.take_while(is_word);
                Ok(Token::Ident(self.text.get(start..self.at).unwrap_or("")))
            }
            _ if is_word(first) => Ok(Token::Ident(self.take_while(is_word))),
            b'"' => self.string(),
            _ if first.is_ascii_graphic() => {
                let pair = [first, second];
                if matches!(&pair, b"<<" | b">>" | b"<=" | b">=" | b"==" | b"!=" | b"&&" | b"||") {
                    self.at += 2;
                    return Ok(Token::Punct2(pair));
                }
                self.at += 1;
                Ok(Token::Punct(first as char))
            }
            _ => {
                let found = self
                    .text
                    .get(self.at..)
                    .and_then(|rest| rest.chars().next())
                    .unwrap_or('\u{fffd}');
                Err(self.error(format!("unexpected character {found:?}")))
            }
        }
    }

    /// Whether a dot and a digit begin a modifier such as `.2d` or `.128b` rather than a number
    /// such as `.5`.
    fn dot_word_follows(&self) -> bool {
        let mut ahead = 1;
        while self.peek(ahead).is_ascii_digit() {
            ahead += 1;
        }
        let next = self.peek(ahead);
        is_word(next) && !matches!(next, b'e' | b'E')
    }

    fn string(&mut self) -> Result<Token<'s>, Error> {
        let start = self.at + 1;
        let line = self.line;
        self.at += 1;
        loop {
            match self.peek(0) {
                b'"' => break,
                b'\\' => self.at += 2,
                b'\n' => {
                    self.line = self.line.saturating_add(1);
                    self.at += 1;
                }
                _ => self.at += 1,
            }
            if self.at >= self.bytes.len() {
                return Err(ErrorKind::Syntax("a string has no end".into()).at(line));
            }
        }
        let content = self.text.get(start..self.at).unwrap_or("");
        self.at += 1;
        Ok(Token::Str(content))
    }

    fn number(&mut self) -> Result<Token<'s>, Error> {
        let start = self.at;
        if self.peek(0) == b'0' {
            let (radix, prefix) = match self.peek(1) {
                b'x' | b'X' => (16, 2),
                b'b' | b'B' => (2, 2),
                b'f' | b'F' | b'd' | b'D' => return self.hex_float(),
                b'0'..=b'9' => (8, 1),
                _ => (10, 0),
            };
            if radix != 10 {
                self.at += prefix;
                let digits = self.take_while(is_word);
                return self.integer(digits, radix);
            }
        }
        self.take_while(|byte| byte.is_ascii_digit());
        let is_float = (self.peek(0) == b'.' && !is_modifier_start(self.peek(1)))
            || (matches!(self.peek(0), b'e' | b'E')
                && matches!(self.peek(1), b'0'..=b'9' | b'+' | b'-'));
        if !is_float {
            let digits = self.text.get(start..self.at).unwrap_or("");
            let suffix = self.take_while(is_word);
            if !suffix.is_empty() && suffix != "U" {
                return Err(
                    self.error(format!("bad number '{}'", excerpt(&format!("{digits}{suffix}"))))
                );
            }
            return self.integer(digits, 10);
        }
        if self.peek(0) == b'.' {
            self.at += 1;
            self.take_while(|byte| byte.is_ascii_digit());
        }
        if matches!(self.peek(0), b'e' | b'E') {
            self.at += 1;
            if matches!(self.peek(0), b'+' | b'-') {
                self.at += 1;
            }
            self.take_while(|byte| byte.is_ascii_digit());
        }
        let digits = self.text.get(start..self.at).unwrap_or("");
        match digits.parse::<f64>() {
            Ok(value) => Ok(Token::F64(value.to_bits())),
            Err(_) => Err(self.error(format!("bad number '{}'", excerpt(digits)))),
        }
    }

    fn integer(&self, digits: &str, radix: u32) -> Result<Token<'s>, Error> {
        let digits = digits.strip_suffix('U').unwrap_or(digits);
        match u64::from_str_radix(digits, radix) {
            Ok(value) => Ok(Token::Int(value)),
            // `08` and `09` have no octal meaning; and `0` alone has lost its only digit to the
            // prefix.
            Err(_) => Err(self.error(format!("bad number '{}'", excerpt(digits)))),
        }
    }

    /// `0f` and eight hexadecimal digits, or `0d` and sixteen.
    fn hex_float(&mut self) -> Result<Token<'s>, Error> {
        let double = matches!(self.peek(1), b'd' | b'D');
        self.at += 2;
        let digits = self.take_while(is_word);
        let want = if double { 16 } else { 8 };
        match u64::from_str_radix(digits, 16) {
            Ok(bits) if digits.len() == want => {
                Ok(if double { Token::F64(bits) } else { Token::F32(bits as u32) })
            }
            _ => Err(self.error(format!(
                "bad floating-point number '{}': {want} hexadecimal digits expected",
                excerpt(digits)
            ))),
        }
    }
}

/// A dot directly behind an integer is a decimal point unless a word follows.
fn is_modifier_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<Token<'_>> {
        lex(text).unwrap().into_iter().map(|lexed| lexed.token).collect()
    }

    #[test]
    fn instructions_become_words_and_modifiers() {
        assert_eq!(
            tokens("@!%p1 ld.global.L2::128B.v2.f32 {%f1,_}, [%rd1+-4];"),
            vec![
                Token::Punct('@'),
                Token::Punct('!'),
                Token::Ident("%p1"),
                Token::Ident("ld"),
                Token::Dot("global"),
                Token::Dot("L2::128B"),
                Token::Dot("v2"),
                Token::Dot("f32"),
                Token::Punct('{'),
                Token::Ident("%f1"),
                Token::Punct(','),
                Token::Ident("_"),
                Token::Punct('}'),
                Token::Punct(','),
                Token::Punct('['),
                Token::Ident("%rd1"),
                Token::Punct('+'),
                Token::Punct('-'),
                Token::Int(4),
                Token::Punct(']'),
                Token::Punct(';'),
                Token::End
            ]
        );
    }

    #[test]
    fn numbers_in_every_notation() {
        assert_eq!(
            tokens("0 42 0x2A 052 0b101010U 42U 0f3F800000 0d3FF0000000000000 1.5 1e3 .25 2."),
            vec![
                Token::Int(0),
                Token::Int(42),
                Token::Int(42),
                Token::Int(42),
                Token::Int(42),
                Token::Int(42),
                Token::F32(0x3f80_0000),
                Token::F64(1f64.to_bits()),
                Token::F64(1.5f64.to_bits()),
                Token::F64(1e3f64.to_bits()),
                Token::F64(0.25f64.to_bits()),
                Token::F64(2f64.to_bits()),
                Token::End
            ]
        );
    }

    #[test]
    fn modifiers_may_begin_with_a_digit() {
        assert_eq!(
            tokens("tex.2d.v4"),
            vec![Token::Ident("tex"), Token::Dot("2d"), Token::Dot("v4"), Token::End]
        );
    }

    #[test]
    fn comments_count_lines() {
        let lexed = lex("// one\n/* two\nthree */ ret").unwrap();
        assert_eq!(lexed[0].token, Token::Ident("ret"));
        assert_eq!(lexed[0].line, 3);
    }

    #[test]
    fn bad_text_names_its_line() {
        for text in [
            "\n/* ",
            "\n\"abc",
            "\n0f12",
            "\n0x",
            "\n\u{7f}",
            "\né",
            "\n12abc",
            "\n99999999999999999999999",
        ] {
            assert_eq!(lex(text).unwrap_err().line, 2, "{text:?}");
        }
    }
}
