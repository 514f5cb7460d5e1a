//! Constant expressions, with the operators and precedences of C.

use super::Parser;
use crate::ast::Const;
use crate::error::Error;
use crate::lexer::Token;

/// Bound on nested parentheses and unary operators, so that no text can exhaust the stack.
const MAX_DEPTH: u32 = 64;

/// Binary operators, loosest first.
fn binary(token: Token<'_>) -> Option<(u8, [u8; 2])> {
    Some(match token {
        Token::Punct2(op @ [b'|', b'|']) => (1, op),
        Token::Punct2(op @ [b'&', b'&']) => (2, op),
        Token::Punct('|') => (3, *b"| "),
        Token::Punct('^') => (4, *b"^ "),
        Token::Punct('&') => (5, *b"& "),
        Token::Punct2(op @ ([b'=', b'='] | [b'!', b'='])) => (6, op),
        Token::Punct('<') => (7, *b"< "),
        Token::Punct('>') => (7, *b"> "),
        Token::Punct2(op @ ([b'<', b'='] | [b'>', b'='])) => (7, op),
        Token::Punct2(op @ ([b'<', b'<'] | [b'>', b'>'])) => (8, op),
        Token::Punct('+') => (9, *b"+ "),
        Token::Punct('-') => (9, *b"- "),
        Token::Punct('*') => (10, *b"* "),
        Token::Punct('/') => (10, *b"/ "),
        Token::Punct('%') => (10, *b"% "),
        _ => return None,
    })
}

/// Precedence from which only sums and products are read: inside `<...>` and where `|` has another
/// meaning.
pub(super) const SUMS: u8 = 9;

impl Parser<'_, '_> {
    /// An integer constant expression.
    pub(super) fn const_int(&mut self) -> Result<i64, Error> {
        match self.constant(1)? {
            Const::Int(value) => Ok(value as i64),
            _ => Err(self.syntax("an integer is expected here, not a floating-point number")),
        }
    }

    /// A constant expression of operators that bind at least as tightly as `lowest`.
    pub(super) fn constant(&mut self, lowest: u8) -> Result<Const, Error> {
        self.constant_at(lowest, 0)
    }

    fn constant_at(&mut self, lowest: u8, depth: u32) -> Result<Const, Error> {
        if depth > MAX_DEPTH {
            return Err(self.syntax("an expression is nested too deeply"));
        }
        let mut left = self.unary(depth)?;
        while let Some((precedence, op)) = binary(self.peek()) {
            if precedence < lowest {
                break;
            }
            self.at += 1;
            let right = self.constant_at(precedence + 1, depth + 1)?;
            left = self.apply(op, left, right)?;
        }
        if lowest <= 1 && self.accept('?') {
            let yes = self.constant_at(1, depth + 1)?;
            self.expect(':')?;
            let no = self.constant_at(1, depth + 1)?;
            return match left {
                Const::Int(0) => Ok(no),
                Const::Int(_) => Ok(yes),
                _ => Err(self.syntax("a condition must be an integer")),
            };
        }
        Ok(left)
    }

    fn unary(&mut self, depth: u32) -> Result<Const, Error> {
        if depth > MAX_DEPTH {
            return Err(self.syntax("an expression is nested too deeply"));
        }
        match self.peek() {
            Token::Int(value) => {
                self.at += 1;
                Ok(Const::Int(value))
            }
            Token::F32(bits) => {
                self.at += 1;
                Ok(Const::F32(bits))
            }
            Token::F64(bits) => {
                self.at += 1;
                Ok(Const::F64(bits))
            }
            Token::Ident("WARP_SZ") => {
                self.at += 1;
                Ok(Const::Int(32))
            }
            Token::Punct('(') => {
                self.at += 1;
                // Casts change how a value is read, not its 64 bits.
                if let Token::Dot("s64" | "u64") = self.peek() {
                    self.at += 1;
                    self.expect(')')?;
                    return self.unary(depth + 1);
                }
                let value = self.constant_at(1, depth + 1)?;
                self.expect(')')?;
                Ok(value)
            }
            Token::Punct(op @ ('-' | '+' | '!' | '~')) => {
                self.at += 1;
                let value = self.unary(depth + 1)?;
                Ok(match (op, value) {
                    ('+', value) => value,
                    ('-', Const::Int(value)) => Const::Int(value.wrapping_neg()),
                    ('-', Const::F32(bits)) => Const::F32(bits ^ (1 << 31)),
                    ('-', Const::F64(bits)) => Const::F64(bits ^ (1 << 63)),
                    ('!', Const::Int(value)) => Const::Int(u64::from(value == 0)),
                    ('~', Const::Int(value)) => Const::Int(!value),
                    _ => return Err(self.syntax(format!("'{op}' needs an integer"))),
                })
            }
            _ => Err(self.expected("a constant")),
        }
    }

    fn apply(&self, op: [u8; 2], left: Const, right: Const) -> Result<Const, Error> {
        let (Const::Int(a), Const::Int(b)) = (left, right) else {
            return self.apply_float(op, left, right);
        };
        let (sa, sb) = (a as i64, b as i64);
        let zero = || self.syntax("division by zero in a constant expression");
        Ok(Const::Int(match &op {
            b"||" => u64::from(a != 0 || b != 0),
            b"&&" => u64::from(a != 0 && b != 0),
            b"| " => a | b,
            b"^ " => a ^ b,
            b"& " => a & b,
            b"==" => u64::from(a == b),
            b"!=" => u64::from(a != b),
            b"< " => u64::from(sa < sb),
            b"> " => u64::from(sa > sb),
            b"<=" => u64::from(sa <= sb),
            b">=" => u64::from(sa >= sb),
            b"<<" => a.checked_shl(b.min(64) as u32).unwrap_or(0),
            b">>" => sa.checked_shr(b.min(63) as u32).unwrap_or(0) as u64,
            b"+ " => a.wrapping_add(b),
            b"- " => a.wrapping_sub(b),
            b"* " => a.wrapping_mul(b),
            b"/ " if b == 0 => return Err(zero()),
            b"/ " => sa.wrapping_div(sb) as u64,
            _ if b == 0 => return Err(zero()),
            _ => sa.wrapping_rem(sb) as u64,
        }))
    }

    fn apply_float(&self, op: [u8; 2], left: Const, right: Const) -> Result<Const, Error> {
        let (Const::F64(a), Const::F64(b)) = (left, right) else {
            return Err(
                self.syntax("a constant expression mixes integers and floating-point numbers")
            );
        };
        let (a, b) = (f64::from_bits(a), f64::from_bits(b));
        let value = match &op {
            b"+ " => a + b,
            b"- " => a - b,
            b"* " => a * b,
            b"/ " => a / b,
            _ => return Err(self.syntax("this operator needs integers")),
        };
        Ok(Const::F64(value.to_bits()))
    }
}
