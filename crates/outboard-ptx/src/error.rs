//! Why a PTX text was refused.

use std::fmt;

/// A PTX text that is wrong, or that needs what the software device does not have.
///
/// Displays as one sentence with the line and, inside a function, its name:
/// `line 12: kernel 'blur': instruction 'tex.2d.v4.f32.f32' is not supported by the software device`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Line in the text, from 1.
    pub line: u32,
    /// The kernel or function that the line belongs to.
    pub function: Option<FunctionName>,
    /// The reason.
    pub kind: ErrorKind,
}

/// A kernel or device function, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionName {
    /// The symbol as the PTX text has it.
    pub name: String,
    /// A kernel (`.entry`) rather than a device function.
    pub is_kernel: bool,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ErrorKind {
    /// The text is not PTX.
    #[error("{0}")]
    Syntax(String),
    /// A valid (or at least well-formed) instruction that the device cannot execute.
    #[error("instruction '{0}' is not supported by the software device")]
    UnsupportedInstruction(String),
    /// Operands do not fit the instruction.
    #[error("instruction '{form}': {reason}")]
    Operands {
        /// The instruction with its modifiers.
        form: String,
        /// What does not fit.
        reason: String,
    },
    /// A directive or feature of the module that the device does not have.
    #[error("{0} is not supported by the software device")]
    UnsupportedFeature(String),
    /// `.version` is newer than what this parser knows.
    #[error("PTX version {0}.{1} is not supported; the newest supported one is 9.9")]
    UnsupportedVersion(u32, u32),
    /// A symbol, register or label that nothing defines.
    #[error("'{0}' is not defined")]
    Undefined(String),
    /// A symbol, register or label with two definitions in one scope.
    #[error("'{0}' is defined twice")]
    Redefined(String),
    /// A declaration that makes no sense.
    #[error("{0}")]
    Declaration(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        if let Some(function) = &self.function {
            let what = if function.is_kernel { "kernel" } else { "function" };
            write!(f, "{what} '{}': ", function.name)?;
        }
        self.kind.fmt(f)
    }
}

impl std::error::Error for Error {}

impl ErrorKind {
    /// Places the error at a line, outside of any function.
    pub(crate) fn at(self, line: u32) -> Error {
        Error { line, function: None, kind: self }
    }
}

/// Longest excerpt of hostile text that goes into a message, in characters.
const EXCERPT: usize = 200;

/// `text` cut to a length that fits a message.
pub(crate) fn excerpt(text: &str) -> String {
    if text.chars().count() <= EXCERPT {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(EXCERPT).collect();
    cut.push_str("...");
    cut
}
