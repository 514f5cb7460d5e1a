//! Text from outside, as logs and terminals can take it.

/// The text without characters that control what shows it: each becomes a question mark. Such are
/// control characters of both sets, line ends among them, and those that turn or hide what is
/// around them.
pub fn plain(text: &str) -> String {
    text.chars().map(|letter| if is_plain(letter) { letter } else { '?' }).collect()
}

/// The same for text of several lines, whose ends stay.
pub fn plain_lines(text: &str) -> String {
    text.chars()
        .map(|letter| if is_plain(letter) || letter == '\n' { letter } else { '?' })
        .collect()
}

fn is_plain(letter: char) -> bool {
    let turns = matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    !(letter.is_control() || turns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_controls_a_terminal_is_taken_out() {
        assert_eq!(
            plain("a\u{1b}[2Jb\r\n\u{9b}c\u{7}\u{202e}d\u{feff}\tZürich 図"),
            "a?[2Jb???c??d??Zürich 図"
        );
        assert_eq!(plain_lines("a\nb\r\u{1b}"), "a\nb??");
    }
}
