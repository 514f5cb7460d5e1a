//! `outboard explain`: the page of an error code.

use miette::Result;
use outboard_wire::Code;

use crate::docs::with_commands;
use crate::failure::Failure;
use crate::output;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The code, such as OB0101; without one, all are listed.
    code: Option<String>,
}

macro_rules! pages {
    ($($text:ident $name:ident $title:literal;)*) => {
        /// The page of a code, as in the documentation.
        const fn page(code: Code) -> &'static str {
            match code {
                $(Code::$name => include_str!(concat!("../../../docs/errors/", stringify!($text), ".md")),)*
            }
        }
    };
}

outboard_wire::for_each_code!(pages);

pub(crate) fn explain(args: &Args) -> Result<()> {
    let text = match &args.code {
        Some(given) => with_commands(page(find(given)?)),
        None => Code::ALL.iter().map(|code| format!("{code}  {}\n", code.title())).collect(),
    };
    output::print(&text)
}

fn find(text: &str) -> Result<Code, Failure> {
    Code::parse(text).ok_or_else(|| {
        let message = format!("`{text}` is no error code of this release");
        Failure::new(
            Code::NoSuchCode,
            message,
            "codes look like OB0101; `outboard explain` lists them",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_says_what_happened_why_and_what_to_do() {
        for code in Code::ALL {
            let page = page(*code);
            let heading = format!("# {code}: {}\n", code.title());
            assert!(
                page.starts_with(&heading),
                "the page of {code} begins with `{}`",
                heading.trim()
            );
            for part in ["\n## What happened\n", "\n## Why\n", "\n## What to do\n"] {
                let (_, text) = page
                    .split_once(part)
                    .unwrap_or_else(|| panic!("{code} has no part `{}`", part.trim()));
                let text = text.split("\n## ").next().unwrap_or_default().trim();
                assert!(text.len() > 20, "{code}: `{}` says something", part.trim());
            }
        }
    }

    #[test]
    fn codes_that_are_not_there_are_told() {
        assert_eq!(find("0101").unwrap(), Code::NothingListens);
        assert_eq!(find("OB9999").unwrap_err().code(), Code::NoSuchCode);
    }
}
