//! Function bodies: statements, instructions, operands.

use super::Parser;
use super::expr::SUMS;
use crate::ast::{Const, Inst, Operand, Stmt};
use crate::error::Error;
use crate::ir::Linkage;
use crate::lexer::Token;

/// Bound on nested scopes.
const MAX_SCOPES: u32 = 128;
/// Bound on modifiers of one instruction; the longest real ones have about fifteen.
const MAX_MODS: usize = 32;
/// Bound on operands of one instruction in one list, labels of `brx` apart.
const MAX_OPERANDS: usize = 4096;

impl<'s> Parser<'s, '_> {
    /// The statements up to the closing brace; the opening one has been read.
    pub(super) fn scope(&mut self, depth: u32) -> Result<Vec<Stmt<'s>>, Error> {
        if depth > MAX_SCOPES {
            return Err(self.syntax("scopes are nested too deeply"));
        }
        let mut stmts = Vec::new();
        loop {
            if self.skip_passive() {
                continue;
            }
            let line = self.line();
            match self.peek() {
                Token::Punct('}') => {
                    self.at += 1;
                    return Ok(stmts);
                }
                Token::Punct('{') => {
                    self.at += 1;
                    stmts.push(Stmt::Scope(self.scope(depth + 1)?));
                }
                Token::End => return Err(self.syntax("a function body has no end: '}' is missing")),
                Token::Dot("maxnreg" | "maxntid" | "minnctapersm" | "reqntid") => {
                    self.directives()?;
                }
                Token::Dot(_) => match self.storage() {
                    Some(storage) => stmts.push(Stmt::Variable(self.variable(
                        line,
                        storage,
                        Linkage::Internal,
                    )?)),
                    None if self.accept_dot("extern") => match self.storage() {
                        Some(storage) => stmts.push(Stmt::Variable(self.variable(
                            line,
                            storage,
                            Linkage::Extern,
                        )?)),
                        None => return Err(self.expected("a variable")),
                    },
                    None => return Err(self.expected("an instruction or a declaration")),
                },
                Token::Ident(name) if self.peek_at(1) == Token::Punct(':') => {
                    self.at += 2;
                    stmts.push(self.labelled(line, name)?);
                }
                Token::Ident(_) | Token::Punct('@') => stmts.push(Stmt::Inst(self.inst()?)),
                _ => return Err(self.expected("an instruction")),
            }
        }
    }

    /// What stands behind `name:`: a list or a prototype, otherwise the name is a label.
    fn labelled(&mut self, line: u32, name: &'s str) -> Result<Stmt<'s>, Error> {
        match self.peek() {
            Token::Dot("callprototype") => {
                self.at += 1;
                let rets =
                    if self.peek() == Token::Punct('(') { self.params()? } else { Vec::new() };
                self.ident("'_'")?;
                let params =
                    if self.peek() == Token::Punct('(') { self.params()? } else { Vec::new() };
                self.directives()?;
                self.expect(';')?;
                Ok(Stmt::Prototype { line, name, rets, params })
            }
            Token::Dot("branchtargets") => {
                self.at += 1;
                Ok(Stmt::BranchTargets { line, name, labels: self.names()? })
            }
            Token::Dot("calltargets") => {
                self.at += 1;
                Ok(Stmt::CallTargets { line, name, functions: self.names()? })
            }
            _ => Ok(Stmt::Label { line, name }),
        }
    }

    fn names(&mut self) -> Result<Vec<&'s str>, Error> {
        let mut names = vec![self.ident("a name")?];
        while self.accept(',') {
            names.push(self.ident("a name")?);
        }
        self.expect(';')?;
        Ok(names)
    }

    fn inst(&mut self) -> Result<Inst<'s>, Error> {
        let line = self.line();
        let guard = if self.accept('@') {
            let negated = self.accept('!');
            Some((self.ident("a predicate register")?, negated))
        } else {
            None
        };
        let opcode = self.ident("an instruction")?;
        let mut mods = Vec::new();
        while let Token::Dot(modifier) = self.peek() {
            if mods.len() == MAX_MODS {
                return Err(self.syntax("an instruction has too many modifiers"));
            }
            self.at += 1;
            mods.push(modifier);
        }
        let mut inst = Inst { line, guard, opcode, mods, operands: Vec::new() };
        if crate::verify::is_refused(&inst) {
            // Its operands may have a syntax of their own; the verifier refuses it by name.
            self.skip_statement();
            return Ok(inst);
        }
        if self.accept(';') {
            return Ok(inst);
        }
        loop {
            let operand = self.operand(opcode == "call", 0)?;
            inst.operands.push(operand);
            if inst.operands.len() > MAX_OPERANDS {
                return Err(self.syntax("an instruction has too many operands"));
            }
            if !self.accept(',') {
                break;
            }
        }
        if self.accept(';') { Ok(inst) } else { Err(self.expected("',' or ';' behind an operand")) }
    }

    fn operand(&mut self, lists: bool, depth: u32) -> Result<Operand<'s>, Error> {
        if depth > 4 {
            return Err(self.syntax("an operand is nested too deeply"));
        }
        match self.peek() {
            Token::Punct('{') => {
                self.at += 1;
                Ok(Operand::Vector(self.operands_until('}', depth)?))
            }
            Token::Punct('(') if lists => {
                self.at += 1;
                Ok(Operand::List(self.operands_until(')', depth)?))
            }
            Token::Punct('[') => self.address(depth),
            Token::Punct('!') if matches!(self.peek_at(1), Token::Ident(_)) => {
                self.at += 1;
                Ok(Operand::Not { name: self.ident("a predicate")? })
            }
            Token::Ident("_") => {
                self.at += 1;
                self.pair(Operand::Sink, depth)
            }
            Token::Ident("WARP_SZ") => Ok(Operand::Const(self.constant(SUMS)?)),
            Token::Ident(name) => {
                self.at += 1;
                let mut suffix = None;
                if let Token::Dot(word) = self.peek() {
                    self.at += 1;
                    suffix = Some(word);
                }
                let addend = self.addend()?;
                self.pair(Operand::Name { name, suffix, addend }, depth)
            }
            _ => Ok(Operand::Const(self.constant(1)?)),
        }
    }

    /// `first|second`, or `first` alone.
    fn pair(&mut self, first: Operand<'s>, depth: u32) -> Result<Operand<'s>, Error> {
        if !self.accept('|') {
            return Ok(first);
        }
        let second = self.operand(false, depth + 1)?;
        Ok(Operand::Pair(Box::new(first), Box::new(second)))
    }

    fn operands_until(&mut self, close: char, depth: u32) -> Result<Vec<Operand<'s>>, Error> {
        let mut list = Vec::new();
        while !self.accept(close) {
            if list.len() == MAX_OPERANDS {
                return Err(self.syntax("a list has too many operands"));
            }
            list.push(self.operand(false, depth + 1)?);
            if !self.accept(',') {
                self.expect(close)?;
                break;
            }
        }
        Ok(list)
    }

    fn address(&mut self, depth: u32) -> Result<Operand<'s>, Error> {
        self.at += 1;
        let (base, offset) = match self.peek() {
            Token::Ident(name) if name != "WARP_SZ" => {
                self.at += 1;
                if self.accept(',') {
                    let coords = Box::new(self.operand(false, depth + 1)?);
                    self.expect(']')?;
                    return Ok(Operand::Texel { object: name, coords });
                }
                (Some(name), self.addend()?)
            }
            _ => match self.constant(1)? {
                Const::Int(value) => (None, value as i64),
                _ => return Err(self.syntax("an address cannot be a floating-point number")),
            },
        };
        self.expect(']')?;
        Ok(Operand::Address { base, offset })
    }
}
