//! `outboard docs`: the documentation's pages, without a network or a browser.

mod pages;

use std::fmt::Write as _;

use miette::Result;
use outboard_wire::Code;

use crate::failure::Failure;
use crate::output;
use pages::PAGES;

/// The parts of the documentation and the titles of their pages.
const CONTENTS: &str = include_str!("../../../docs/SUMMARY.md");

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The page, such as `pool`; without one, all are listed.
    page: Option<String>,
}

pub(crate) fn docs(args: &Args) -> Result<()> {
    match &args.page {
        None => output::print(&contents()),
        Some(given) => output::print(&with_commands(find(given)?)),
    }
}

/// A page by its name, as it is listed or as a file of the repository.
fn find(given: &str) -> Result<&'static str, Failure> {
    let name = given.trim_start_matches("docs/").trim_end_matches(".md");
    let page = PAGES.iter().find(|(other, _)| *other == name);
    page.map(|(_, text)| *text).ok_or_else(|| {
        let message = format!("`{given}` is no page of the documentation");
        Failure::new(Code::BadUsage, message, "`outboard docs` lists the pages")
    })
}

/// The pages by their parts, each with its name and title.
fn contents() -> String {
    let mut text = String::new();
    for line in CONTENTS.lines() {
        if let Some(part) = line.strip_prefix("# ").filter(|part| *part != "Summary") {
            let _ = writeln!(text, "\n{part}");
        } else if let Some((title, name)) = entry(line)
            && PAGES.iter().any(|(page, _)| *page == name)
        {
            let _ = writeln!(text, "  {name:19}  {title}");
        }
    }
    text + "\n`outboard explain` lists the pages of error codes.\n"
}

/// Title and name in `- [Title](name.md)`.
fn entry(line: &str) -> Option<(&str, &str)> {
    let (title, rest) = line.trim_start_matches("- ").strip_prefix('[')?.split_once("](")?;
    Some((title, rest.strip_suffix(".md)")?))
}

/// A page as a terminal shows it: a link to another page is the command that prints that one.
pub(crate) fn with_commands(page: &str) -> String {
    let mut text = String::with_capacity(page.len());
    let mut rest = page;
    while let Some((before, (title, command), after)) = next_link(rest) {
        let _ = write!(text, "{before}{title} (`{command}`)");
        rest = after;
    }
    text + rest
}

/// The first link to a page: what is before it, its title with the command, and what is after it.
fn next_link(text: &str) -> Option<(&str, (&str, String), &str)> {
    let mut from = 0;
    loop {
        let middle = from + text[from..].find("](")?;
        let end = middle + text[middle..].find(')')?;
        let start = text[..middle].rfind('[').filter(|start| *start >= from);
        let command = command_for(&text[middle + 2..end]);
        if let (Some(start), Some(command)) = (start, command) {
            return Some((&text[..start], (&text[start + 1..middle], command), &text[end + 1..]));
        }
        from = end;
    }
}

/// The command that prints what a link leads to.
fn command_for(link: &str) -> Option<String> {
    let file = link.split('#').next()?.trim_start_matches("../").strip_suffix(".md")?;
    let name = file.trim_start_matches("errors/");
    let is_code = Code::parse(name).is_some();
    let is_page = PAGES.iter().any(|(page, _)| *page == name);
    let command = is_code.then_some("explain").or(is_page.then_some("docs"))?;
    Some(format!("outboard {command} {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_commands() {
        let shown = with_commands(
            "a [b](pool.md#c), [d](../security.md), [e](errors/OB0101.md), [f](OB0102.md); \
             [g](https://h), [i](decisions/0001-x.md) [j] (k), array[1](2), [l](",
        );
        assert_eq!(
            shown,
            "a b (`outboard docs pool`), d (`outboard docs security`), e (`outboard explain \
             OB0101`), f (`outboard explain OB0102`); [g](https://h), [i](decisions/0001-x.md) \
             [j] (k), array[1](2), [l]("
        );
    }

    #[test]
    fn each_page_is_listed_once_and_found() {
        let contents = contents();
        for (name, text) in PAGES {
            let lines = contents.lines().filter(|line| line.starts_with(&format!("  {name} ")));
            assert_eq!(lines.count(), 1, "{name}");
            for given in [(*name).to_owned(), format!("docs/{name}.md")] {
                assert_eq!(find(&given).unwrap(), *text);
            }
        }
        assert!(find("../README").unwrap_err().to_string().contains("no page"));
    }
}
