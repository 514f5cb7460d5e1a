//! Some tests of a program.

/// Which tests of a program are run.
pub(super) enum Chosen<'a> {
    All,
    One(&'a str),
    These(Vec<String>),
}

impl Chosen<'_> {
    pub(super) fn takes(&self, test: &str) -> bool {
        match self {
            Chosen::All => true,
            Chosen::One(one) => *one == test,
            Chosen::These(these) => these.iter().any(|of_these| of_these == test),
        }
    }

    /// What tells a program so, which has these tests: libtest-mimic knows one name only, so all
    /// others are named.
    pub(super) fn arguments(&self, all: impl FnOnce() -> Vec<String>) -> Vec<String> {
        match self {
            Chosen::All => Vec::new(),
            Chosen::One(one) => vec!["--exact".to_owned(), (*one).to_owned()],
            Chosen::These(_) => {
                let others = all().into_iter().filter(|test| !self.takes(test));
                let skip = others.flat_map(|test| ["--skip".to_owned(), test]);
                std::iter::once("--exact".to_owned()).chain(skip).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_tests_of_a_program_are_named_by_those_that_are_not_meant() {
        let all = || ["one", "two", "three"].map(str::to_owned).to_vec();
        assert!(Chosen::All.arguments(all).is_empty());
        assert_eq!(Chosen::One("one").arguments(all), ["--exact", "one"]);
        let these = Chosen::These(vec!["two".to_owned()]);
        assert_eq!(these.arguments(all), ["--exact", "--skip", "one", "--skip", "three"]);
        assert!(these.takes("two") && !these.takes("one"));
    }
}
