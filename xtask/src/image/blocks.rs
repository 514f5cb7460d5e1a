//! Blocks of code in pages of the documentation, and words in what commands print.

use crate::util::root;
use anyhow::{Context, Result};
use std::fs;

/// A block of code behind a heading of a page, the first with number 1.
pub(crate) fn block(page: &str, heading: &str, number: usize) -> Result<String> {
    let text = fs::read_to_string(root().join(page)).with_context(|| format!("no {page}"))?;
    let (_, part) = text.split_once(heading).with_context(|| format!("{page}: {heading}"))?;
    let block = part.split("```").nth(2 * number - 1).context("blocks follow it")?;
    let (_, lines) = block.split_once('\n').context("the block has lines")?;
    Ok(lines.trim_end().to_owned())
}

/// The word in a text that begins so.
pub(crate) fn word<'a>(text: &'a str, begin: &str) -> Result<&'a str> {
    let mut words = text.split(|c: char| c.is_whitespace() || ['/', '=', '@'].contains(&c));
    words.find(|word| word.starts_with(begin)).with_context(|| format!("no {begin} in {text}"))
}
