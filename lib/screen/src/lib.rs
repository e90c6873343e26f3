//! The live screen of `top`: what was told and which keys were pressed go in, a picture comes out. No terminal, no clock, no client:
//! whoever has these asks [`Screen::on`] what becomes of each input, and draws what [`Screen::draw`] makes.

mod columns;
mod draw;
mod history;
mod screen;

pub use draw::HELP;
pub use screen::{Input, Key, Next, Options, Screen};

#[cfg(test)]
mod tests;
