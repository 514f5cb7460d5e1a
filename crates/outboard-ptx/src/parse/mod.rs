//! From tokens to the tree of `crate::ast`.

mod body;
mod decl;
mod expr;

use crate::ast::{Function, Item, Module, Storage};
use crate::error::{Error, ErrorKind, excerpt};
use crate::ir::Linkage;
use crate::lexer::{Lexed, Token, lex};
use crate::types::Space;

/// Newest ISA version that is accepted. Minor versions of CUDA 13 add instructions, which are
/// refused one by one.
const NEWEST_MAJOR: u32 = 9;

/// Parses a whole module.
pub(crate) fn parse(text: &str) -> Result<Module<'_>, Error> {
    // A text handed over as a C string may carry its terminator.
    let text = text.trim_end_matches('\0');
    let tokens = lex(text)?;
    Parser { tokens: &tokens, at: 0 }.module()
}

pub(crate) struct Parser<'s, 't> {
    tokens: &'t [Lexed<'s>],
    at: usize,
}

/// A token as it should look in a message.
fn describe(token: Token<'_>) -> String {
    match token {
        Token::Ident(word) => format!("'{}'", excerpt(word)),
        Token::Dot(word) => format!("'.{}'", excerpt(word)),
        Token::Int(value) => format!("'{value}'"),
        Token::F32(_) | Token::F64(_) => "a floating-point number".into(),
        Token::Str(_) => "a string".into(),
        Token::Punct(c) => format!("'{c}'"),
        Token::Punct2(pair) => format!("'{}{}'", pair[0] as char, pair[1] as char),
        Token::End => "the end of the text".into(),
    }
}

impl<'s> Parser<'s, '_> {
    fn peek(&self) -> Token<'s> {
        self.peek_at(0)
    }

    fn peek_at(&self, ahead: usize) -> Token<'s> {
        self.tokens.get(self.at + ahead).map_or(Token::End, |lexed| lexed.token)
    }

    fn line(&self) -> u32 {
        let last = self.tokens.len().saturating_sub(1);
        self.tokens.get(self.at.min(last)).map_or(1, |lexed| lexed.line)
    }

    fn next(&mut self) -> Token<'s> {
        let token = self.peek();
        if self.at < self.tokens.len() {
            self.at += 1;
        }
        token
    }

    fn syntax(&self, message: impl Into<String>) -> Error {
        ErrorKind::Syntax(message.into()).at(self.line())
    }

    fn expected(&self, what: &str) -> Error {
        self.syntax(format!("{what} expected, found {}", describe(self.peek())))
    }

    /// Takes `c` if it is next.
    fn accept(&mut self, c: char) -> bool {
        let found = self.peek() == Token::Punct(c);
        if found {
            self.at += 1;
        }
        found
    }

    fn expect(&mut self, c: char) -> Result<(), Error> {
        if self.accept(c) { Ok(()) } else { Err(self.expected(&format!("'{c}'"))) }
    }

    /// Takes the directive or modifier `.word` if it is next.
    fn accept_dot(&mut self, word: &str) -> bool {
        let found = self.peek() == Token::Dot(word);
        if found {
            self.at += 1;
        }
        found
    }

    fn ident(&mut self, what: &str) -> Result<&'s str, Error> {
        match self.peek() {
            Token::Ident(name) => {
                self.at += 1;
                Ok(name)
            }
            _ => Err(self.expected(what)),
        }
    }

    /// A constant expression that must fit 32 bits.
    fn small(&mut self, what: &str) -> Result<u32, Error> {
        let value = self.const_int()?;
        u32::try_from(value).map_err(|_| self.syntax(format!("{what} {value} is out of range")))
    }

    /// Skips to behind the next semicolon.
    fn skip_statement(&mut self) {
        while !matches!(self.next(), Token::Punct(';') | Token::End) {}
    }

    /// Skips the tokens on the line of the current one: `.loc` and `.file` have no terminator.
    fn skip_line(&mut self) {
        let line = self.line();
        while self.peek() != Token::End && self.line() == line {
            self.at += 1;
        }
    }

    /// Skips `.section NAME { ... }`.
    fn skip_section(&mut self) {
        while !matches!(self.peek(), Token::Punct('{') | Token::End) {
            self.at += 1;
        }
        let mut depth = 0usize;
        loop {
            match self.next() {
                Token::Punct('{') => depth += 1,
                Token::Punct('}') => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return;
                    }
                }
                Token::End => return,
                _ => {}
            }
        }
    }

    /// Skips debugging information and hints, which may stand anywhere. True if there was something
    /// to skip.
    fn skip_passive(&mut self) -> bool {
        match self.peek() {
            Token::Dot("loc" | "file") => self.skip_line(),
            // The old form of debugging information.
            Token::Punct('@') if self.peek_at(1) == Token::Punct('@') => self.skip_line(),
            Token::Dot("section") => self.skip_section(),
            Token::Dot("pragma") => self.skip_statement(),
            Token::Punct(';') => {
                self.at += 1;
            }
            _ => return false,
        }
        true
    }

    fn module(mut self) -> Result<Module<'s>, Error> {
        while self.skip_passive() {}
        if !self.accept_dot("version") {
            return Err(self.expected("the directive '.version'"));
        }
        let version = self.version()?;
        while self.skip_passive() {}
        if !self.accept_dot("target") {
            return Err(self.expected("the directive '.target'"));
        }
        let target_sm = self.target()?;
        let mut items = Vec::new();
        loop {
            while self.skip_passive() {}
            match self.peek() {
                Token::End => return Ok(Module { version, target_sm, items }),
                Token::Dot("address_size") => {
                    self.at += 1;
                    let bits = self.const_int()?;
                    if bits != 64 {
                        let kind = ErrorKind::UnsupportedFeature(format!("'.address_size {bits}'"));
                        return Err(kind.at(self.line()));
                    }
                }
                // Repeated headers, as in concatenated texts.
                Token::Dot("version") => {
                    self.at += 1;
                    self.version()?;
                }
                Token::Dot("target") => {
                    self.at += 1;
                    self.target()?;
                }
                Token::Dot("alias") => items.push(self.alias()?),
                _ => items.push(self.item()?),
            }
        }
    }

    fn version(&mut self) -> Result<(u32, u32), Error> {
        // `9.0` is one token for the lexer, a floating-point literal.
        let line = self.line();
        let (major, minor) = match self.next() {
            Token::F64(bits) => {
                let tenths = (f64::from_bits(bits) * 10.0).round();
                if !(10.0..1000.0).contains(&tenths) {
                    return Err(ErrorKind::Syntax("bad '.version'".into()).at(line));
                }
                (tenths as u32 / 10, tenths as u32 % 10)
            }
            _ => {
                return Err(ErrorKind::Syntax(
                    "a version such as 9.0 expected behind '.version'".into(),
                )
                .at(line));
            }
        };
        if major > NEWEST_MAJOR {
            return Err(ErrorKind::UnsupportedVersion(major, minor).at(line));
        }
        Ok((major, minor))
    }

    fn target(&mut self) -> Result<u32, Error> {
        let mut sm = None;
        loop {
            let word = self.ident("a target such as sm_75")?;
            if let Some(arch) = word.strip_prefix("sm_").or_else(|| word.strip_prefix("compute_")) {
                let digits = arch.trim_end_matches(|c: char| c.is_ascii_alphabetic());
                let number = digits.parse::<u32>().ok().filter(|&number| number < 10_000);
                sm = Some(
                    number.ok_or_else(|| self.syntax(format!("bad target '{}'", excerpt(word))))?,
                );
            }
            if !self.accept(',') {
                break;
            }
        }
        sm.ok_or_else(|| self.syntax("'.target' names no architecture such as sm_75"))
    }

    fn alias(&mut self) -> Result<Item<'s>, Error> {
        let line = self.line();
        self.at += 1;
        let name = self.ident("a function name")?;
        self.expect(',')?;
        let target = self.ident("a function name")?;
        self.expect(';')?;
        Ok(Item::Alias { line, name, target })
    }

    /// A variable or a function.
    fn item(&mut self) -> Result<Item<'s>, Error> {
        let line = self.line();
        let mut linkage = Linkage::Internal;
        loop {
            linkage = match self.peek() {
                Token::Dot("visible") => Linkage::Visible,
                Token::Dot("extern") => Linkage::Extern,
                Token::Dot("weak") => Linkage::Weak,
                Token::Dot("common") => Linkage::Common,
                _ => break,
            };
            self.at += 1;
        }
        match self.peek() {
            Token::Dot("entry") => {
                self.at += 1;
                Ok(Item::Function(self.function(line, linkage, true)?))
            }
            Token::Dot("func") => {
                self.at += 1;
                Ok(Item::Function(self.function(line, linkage, false)?))
            }
            _ => match self.storage() {
                Some(storage @ Storage::Memory(Space::Global | Space::Const | Space::Shared)) => {
                    Ok(Item::Variable(self.variable(line, storage, linkage)?))
                }
                Some(_) => Err(ErrorKind::Declaration(
                    "only variables in '.global', '.const' and '.shared' may stand outside of a function".into(),
                )
                .at(line)),
                None => Err(self.expected("a directive, a variable or a function")),
            },
        }
    }

    /// Takes a state space directive if it is next.
    fn storage(&mut self) -> Option<Storage> {
        let storage = match self.peek() {
            Token::Dot("reg") => Storage::Reg,
            Token::Dot("global") => Storage::Memory(Space::Global),
            Token::Dot("const") => Storage::Memory(Space::Const),
            Token::Dot("shared") => Storage::Memory(Space::Shared),
            Token::Dot("local") => Storage::Memory(Space::Local),
            Token::Dot("param") => Storage::Memory(Space::Param),
            // Textures as unnamed arguments of old modules.
            Token::Dot("tex") => Storage::Memory(Space::Global),
            _ => return None,
        };
        self.at += 1;
        Some(storage)
    }

    fn function(
        &mut self,
        line: u32,
        linkage: Linkage,
        is_kernel: bool,
    ) -> Result<Function<'s>, Error> {
        let mut directives = self.directives()?;
        let rets = if !is_kernel && self.peek() == Token::Punct('(') {
            self.params()?
        } else {
            Vec::new()
        };
        let name = self.ident("a function name")?;
        let params = if self.peek() == Token::Punct('(') { self.params()? } else { Vec::new() };
        directives.merge(&self.directives()?);
        let body = if self.accept(';') {
            None
        } else if self.accept('{') {
            Some(self.scope(0)?)
        } else {
            return Err(self.expected("'{' or ';' behind the head of a function"));
        };
        Ok(Function { line, name, linkage, is_kernel, rets, params, directives, body })
    }
}
