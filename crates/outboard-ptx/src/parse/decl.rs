//! Declarations: variables, registers, parameters, initialisers, performance directives.

use super::Parser;
use crate::ast::{Declarator, Directives, Init, Storage, Variable};
use crate::error::{Error, ErrorKind};
use crate::ir::Linkage;
use crate::lexer::Token;
use crate::types::{Space, Type};

/// Bound on nested initialiser lists.
const MAX_DEPTH: u32 = 16;
/// Bound on array dimensions.
const MAX_DIMS: usize = 16;

impl Directives {
    /// Takes over what `other` sets.
    pub(super) fn merge(&mut self, other: &Directives) {
        self.max_ntid = other.max_ntid.or(self.max_ntid);
        self.req_ntid = other.req_ntid.or(self.req_ntid);
        self.min_ncta_per_sm = other.min_ncta_per_sm.or(self.min_ncta_per_sm);
        self.max_nreg = other.max_nreg.or(self.max_nreg);
        self.req_cluster = other.req_cluster.or(self.req_cluster);
        self.noreturn |= other.noreturn;
    }
}

impl<'s> Parser<'s, '_> {
    /// The directives between the head of a function and its body.
    pub(super) fn directives(&mut self) -> Result<Directives, Error> {
        let mut found = Directives::default();
        loop {
            let Token::Dot(word) = self.peek() else { return Ok(found) };
            match word {
                "maxntid" => found.max_ntid = Some(self.dimensions()?),
                "reqntid" => found.req_ntid = Some(self.dimensions()?),
                "reqnctapercluster" => found.req_cluster = Some(self.dimensions()?),
                "minnctapersm" | "maxnctapersm" => {
                    self.at += 1;
                    found.min_ncta_per_sm = Some(self.small("the number of blocks")?);
                }
                "maxnreg" => {
                    self.at += 1;
                    found.max_nreg = Some(self.small("the number of registers")?);
                }
                "maxclusterrank" | "abi_preserve" | "abi_preserve_control" => {
                    self.at += 1;
                    self.const_int()?;
                }
                "noreturn" => {
                    self.at += 1;
                    found.noreturn = true;
                }
                "explicitcluster" | "blocksareclusters" | "unique" => self.at += 1,
                "attribute" => {
                    self.attribute()?;
                }
                "pragma" => self.skip_statement(),
                "loc" | "file" => self.skip_line(),
                _ => return Err(self.expected("a function body or a directive of a function")),
            }
        }
    }

    fn dimensions(&mut self) -> Result<[u32; 3], Error> {
        self.at += 1;
        let mut dims = [1; 3];
        for (index, dim) in dims.iter_mut().enumerate() {
            if index > 0 && !self.accept(',') {
                break;
            }
            *dim = self.small("a dimension")?;
        }
        Ok(dims)
    }

    /// `.attribute(.managed)` or `.attribute(.unified(a, b))`; true for managed.
    fn attribute(&mut self) -> Result<bool, Error> {
        self.at += 1;
        self.expect('(')?;
        let mut managed = false;
        let mut depth = 1u32;
        while depth > 0 {
            match self.next() {
                Token::Punct('(') => depth += 1,
                Token::Punct(')') => depth -= 1,
                Token::Dot("managed") => managed = true,
                Token::End => return Err(self.expected("')'")),
                _ => {}
            }
        }
        Ok(managed)
    }

    /// `( declaration, declaration )` of a function or prototype. Without a name (`_`) is allowed.
    pub(super) fn params(&mut self) -> Result<Vec<Variable<'s>>, Error> {
        self.expect('(')?;
        let mut params = Vec::new();
        while self.skip_passive() {}
        while !self.accept(')') {
            let line = self.line();
            let Some(storage @ (Storage::Reg | Storage::Memory(Space::Param))) = self.storage()
            else {
                return Err(self.expected("'.param' or '.reg'"));
            };
            let mut param = self.variable_head(line, storage, Linkage::Internal)?;
            let name = match self.peek() {
                Token::Ident(_) => self.declarator()?,
                _ => return Err(self.expected("a parameter name")),
            };
            param.names.push(name);
            params.push(param);
            while self.skip_passive() {}
            if !self.accept(',') {
                self.expect(')')?;
                break;
            }
            while self.skip_passive() {}
        }
        Ok(params)
    }

    /// A whole declaration, to behind its semicolon. The state space has been read.
    pub(super) fn variable(
        &mut self,
        line: u32,
        storage: Storage,
        linkage: Linkage,
    ) -> Result<Variable<'s>, Error> {
        let mut variable = self.variable_head(line, storage, linkage)?;
        loop {
            let name = self.declarator()?;
            variable.names.push(name);
            if !self.accept(',') {
                break;
            }
        }
        self.expect(';')?;
        Ok(variable)
    }

    /// Alignment, attributes, vector size and type, in any order.
    fn variable_head(
        &mut self,
        line: u32,
        storage: Storage,
        linkage: Linkage,
    ) -> Result<Variable<'s>, Error> {
        let mut align = None;
        let mut managed = false;
        let mut vector = 1;
        let mut ty = None;
        while let Token::Dot(word) = self.peek() {
            match word {
                "align" => {
                    self.at += 1;
                    let bytes = self.small("the alignment")?;
                    if !bytes.is_power_of_two() || bytes > 1 << 20 {
                        let kind = ErrorKind::Declaration(format!(
                            "alignment {bytes} is not a small power of two"
                        ));
                        return Err(kind.at(line));
                    }
                    align = Some(bytes);
                }
                "attribute" => managed |= self.attribute()?,
                "v2" => (vector, self.at) = (2, self.at + 1),
                "v4" => (vector, self.at) = (4, self.at + 1),
                "v8" => (vector, self.at) = (8, self.at + 1),
                // What a pointer parameter points to: `.ptr .global .align 4`.
                "ptr" => {
                    self.at += 1;
                    self.storage();
                    if self.accept_dot("align") {
                        self.const_int()?;
                    }
                }
                // Handles of textures and surfaces: declared here, refused where they are used.
                "texref" | "samplerref" | "surfref" => {
                    (ty, self.at) = (Some(Type::B64), self.at + 1)
                }
                _ => match Type::from_name(word) {
                    Some(found) if ty.is_none() => (ty, self.at) = (Some(found), self.at + 1),
                    _ => return Err(self.expected("a type or a name")),
                },
            }
        }
        let ty = ty.ok_or_else(|| self.expected("a type"))?;
        if ty == Type::Pred && storage != Storage::Reg {
            return Err(
                ErrorKind::Declaration("'.pred' is a type of registers only".into()).at(line)
            );
        }
        Ok(Variable { line, storage, linkage, managed, align, vector, ty, names: Vec::new() })
    }

    fn declarator(&mut self) -> Result<Declarator<'s>, Error> {
        let name = self.ident("a name")?;
        let mut count = None;
        if self.accept('<') {
            let value = match self.constant(super::expr::SUMS)? {
                crate::ast::Const::Int(value) => u32::try_from(value).ok(),
                _ => None,
            };
            count = Some(value.ok_or_else(|| self.syntax("bad number of registers"))?);
            self.expect('>')?;
        }
        let mut dims = Vec::new();
        while self.accept('[') {
            if dims.len() == MAX_DIMS {
                return Err(self.syntax("an array has too many dimensions"));
            }
            if self.accept(']') {
                dims.push(None);
                continue;
            }
            let size = self.const_int()?;
            let size =
                u64::try_from(size).map_err(|_| self.syntax("an array has a negative size"))?;
            dims.push(Some(size));
            self.expect(']')?;
        }
        let init = if self.accept('=') { Some(self.init(0)?) } else { None };
        Ok(Declarator { name, count, dims, init })
    }

    fn init(&mut self, depth: u32) -> Result<Init<'s>, Error> {
        if depth > MAX_DEPTH {
            return Err(self.syntax("an initialiser is nested too deeply"));
        }
        match self.peek() {
            Token::Punct('{') => {
                self.at += 1;
                let mut list = Vec::new();
                while !self.accept('}') {
                    list.push(self.init(depth + 1)?);
                    if !self.accept(',') {
                        self.expect('}')?;
                        break;
                    }
                }
                Ok(Init::List(list))
            }
            Token::Str(text) => {
                self.at += 1;
                Ok(Init::Str(text))
            }
            Token::Ident("generic") if self.peek_at(1) == Token::Punct('(') => {
                self.at += 2;
                let name = self.ident("a variable")?;
                let inner = self.addend()?;
                self.expect(')')?;
                let addend = inner.wrapping_add(self.addend()?);
                Ok(Init::Symbol { name, addend, generic: true, mask: None })
            }
            Token::Ident(name) if name != "WARP_SZ" => {
                self.at += 1;
                let addend = self.addend()?;
                Ok(Init::Symbol { name, addend, generic: false, mask: None })
            }
            // `0xff00(sym)`: one byte of an address.
            Token::Int(mask) if self.peek_at(1) == Token::Punct('(') => {
                self.at += 2;
                let generic =
                    self.peek() == Token::Ident("generic") && self.peek_at(1) == Token::Punct('(');
                if generic {
                    self.at += 2;
                }
                let name = self.ident("a symbol")?;
                let mut addend = self.addend()?;
                self.expect(')')?;
                if generic {
                    addend = addend.wrapping_add(self.addend()?);
                    self.expect(')')?;
                }
                Ok(Init::Symbol { name, addend, generic, mask: Some(mask) })
            }
            _ => Ok(Init::Value(self.constant(1)?)),
        }
    }

    /// `+ constant`, `- constant` or nothing.
    pub(super) fn addend(&mut self) -> Result<i64, Error> {
        match self.peek() {
            Token::Punct('+') => {
                self.at += 1;
                self.const_addend()
            }
            Token::Punct('-') => self.const_addend(),
            _ => Ok(0),
        }
    }

    fn const_addend(&mut self) -> Result<i64, Error> {
        match self.constant(super::expr::SUMS)? {
            crate::ast::Const::Int(value) => Ok(value as i64),
            _ => Err(self.syntax("an integer is expected here, not a floating-point number")),
        }
    }
}
