//! What every page of Moonrail stands in: head, links, switch of the theme. Knows no content.

use maud::{DOCTYPE, Markup, html};

/// The style of every page. It follows the system, or the theme chosen with [`THEME`].
pub const STYLE: &str = include_str!("../assets/style.css");
/// The script that remembers the theme. It is loaded in the head, so that no page is drawn in the wrong one first.
pub const THEME: &str = include_str!("../assets/theme.js");

/// Where a page's surroundings lead. All links are relative, so that they work behind a proxy's prefix and from a disk.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// The page's own name.
    pub title: &'a str,
    /// The folder of `style.css` and `theme.js`, with its slash, or nothing.
    pub assets: &'a str,
    /// Links at the top, by name; the first is the one in bold.
    pub links: &'a [(&'a str, &'a str)],
    /// Further style sheets.
    pub styles: &'a [&'a str],
    /// Further scripts.
    pub scripts: &'a [&'a str],
    /// For tables rather than text.
    pub wide: bool,
}

impl Frame<'_> {
    /// The whole page.
    #[must_use]
    pub fn page(&self, content: &Markup) -> String {
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) }
                    // No icon: browsers would ask for one.
                    link rel="icon" href="data:,";
                    link rel="stylesheet" href={ (self.assets) "style.css" };
                    @for style in self.styles { link rel="stylesheet" href=(style); }
                    script src={ (self.assets) "theme.js" } {}
                    @for script in self.scripts { script src=(script) defer {} }
                }
                body class=[self.wide.then_some("wide")] {
                    a class="skip" href="#content" { "Skip to the content" }
                    header {
                        nav aria-label="Pages" { @for (name, href) in self.links { a href=(href) { (name) } } }
                        button id="theme" type="button" hidden { "Theme" }
                    }
                    main id="content" tabindex="-1" { (content) }
                }
            }
        }
        .into_string()
    }
}
