//! Mistakes in a configuration file, each with its place.

use std::ops::Range;
use std::sync::Arc;

use miette::{Diagnostic, NamedSource, SourceSpan};

/// All mistakes of a file.
#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("the configuration {file} has {count}")]
#[diagnostic(code(OB0703), help("nothing of it is used until all of it is right"))]
pub(crate) struct Mistakes {
    file: String,
    count: String,
    #[source_code]
    text: Arc<NamedSource<String>>,
    #[related]
    mistakes: Vec<Mistake>,
}

/// One mistake.
#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("{message}")]
pub(crate) struct Mistake {
    pub(crate) message: String,
    #[label]
    pub(crate) place: Option<SourceSpan>,
    #[help]
    pub(crate) help: Option<String>,
}

impl Mistake {
    pub(crate) fn new(
        message: impl Into<String>,
        place: Range<usize>,
        help: Option<String>,
    ) -> Mistake {
        Mistake { message: message.into(), place: Some(place.into()), help }
    }
}

impl Mistakes {
    pub(crate) fn new(file: &std::path::Path, text: &str, mistakes: Vec<Mistake>) -> Mistakes {
        let file = file.display().to_string();
        let count = if mistakes.len() == 1 {
            "a mistake".to_owned()
        } else {
            format!("{} mistakes", mistakes.len())
        };
        Mistakes { text: Arc::new(NamedSource::new(&file, text.to_owned())), file, count, mistakes }
    }

    #[cfg(test)]
    pub(crate) fn all(&self) -> &[Mistake] {
        &self.mistakes
    }
}
