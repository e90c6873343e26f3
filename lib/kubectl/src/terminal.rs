//! The terminal on which `top` draws: taken when it begins, and given back as it was, however it ends.

use std::{
    io::{self, IsTerminal, Stdout, stdin, stdout},
    panic,
    sync::{
        Arc, Once,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use ckb_probe_screen::{Input, Key, Next, Options, Screen};
use crossterm::{
    cursor::Show,
    event::{self, Event, KeyCode, KeyEventKind, KeyModifiers},
    execute,
    terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
};
use ratatui_core::terminal::Terminal;
use ratatui_crossterm::CrosstermBackend;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Signal as Number, getpgrp},
    termios::tcgetpgrp,
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc::{Receiver, UnboundedReceiver, UnboundedSender, unbounded_channel},
};

use crate::interrupts::Interrupts;

/// How long the thread that waits for keys waits before it looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(50);

/// How long whoever gives a terminal back waits for that thread. Of a terminal that was closed as it read it may never come.
const LAST_LOOK: Duration = Duration::from_millis(250);

/// Why nothing can be drawn.
#[derive(Debug, thiserror::Error)]
pub enum TerminalError {
    /// There is no terminal.
    #[error(
        "top draws on a terminal, and {0} is none: --once prints one picture, and -o json one for programs"
    )]
    None(&'static str),
    /// Somebody else has it.
    #[error(
        "top reads keys of a terminal, and runs in the background of this one: start it without &, or with --once for one picture"
    )]
    Background,
    /// It cannot be drawn on.
    #[error(
        "top moves a cursor, and TERM={0:?} says that this terminal has none: --once prints one picture, and -o json one for programs"
    )]
    Dumb(String),
    /// It does not work.
    #[error("cannot draw on this terminal: {0}")]
    Draw(#[from] io::Error),
}

/// Whether there may be colours: see no-color.org.
fn has_colour() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// How many columns the terminal has to which standard output goes; None where it goes elsewhere.
pub fn columns() -> Option<usize> {
    let size = stdout()
        .is_terminal()
        .then(crossterm::terminal::window_size);
    let columns = usize::from(size?.ok()?.columns);
    (columns > 0).then_some(columns)
}

/// Whether the terminal is another job's: the kernel stops all of the program as soon as it asks for keys, or takes it. Of a terminal that is not its
/// own, nobody knows.
pub(crate) fn is_in_background() -> bool {
    tcgetpgrp(stdin()).is_ok_and(|foreground| foreground != getpgrp())
}

/// Whether it can be drawn on at all: before anything else is done.
pub fn check() -> Result<(), TerminalError> {
    if !stdout().is_terminal() {
        return Err(TerminalError::None("standard output"));
    }
    if !stdin().is_terminal() {
        return Err(TerminalError::None("standard input"));
    }
    if is_in_background() {
        return Err(TerminalError::Background);
    }
    match std::env::var("TERM") {
        Ok(term) if term != "dumb" && !term.is_empty() => Ok(()),
        term => Err(TerminalError::Dumb(term.unwrap_or_default())),
    }
}

/// Why drawing ends.
enum Last {
    /// Somebody has seen enough, or nobody tells any more.
    Over,
    /// It is to be suspended.
    Suspended,
}

/// Draws what is told until somebody has seen enough, or nobody tells any more. At Ctrl-Z the terminal is given back, `suspend` returns once
/// somebody has all of this go on, or why it was not suspended, and it is taken again.
pub async fn show(
    title: String,
    mut told: Receiver<Input>,
    mut suspend: impl AsyncFnMut() -> Option<String>,
) -> Result<(), TerminalError> {
    check()?;
    let mut interrupts = Interrupts::new()?;
    let mut suspensions = signal(SignalKind::from_raw(Number::TSTP.as_raw()))?;
    let size = crossterm::terminal::size()?;
    let options = Options {
        title,
        colour: has_colour(),
    };
    let mut screen = Screen::new(options, size.0, size.1);
    let mut ends = (&mut interrupts, &mut suspensions);
    let mut refused = None;
    while let Last::Suspended = draw_until(&mut screen, &mut told, &mut ends, refused).await? {
        refused = suspend().await;
        // It was told to end there, or nobody is left who would give it the terminal.
        if is_in_background() {
            return Ok(());
        }
    }
    Ok(())
}

/// As long as the terminal is taken, which it is not any more after that. Why it was not suspended is read until a key is pressed.
async fn draw_until(
    screen: &mut Screen,
    told: &mut Receiver<Input>,
    (interrupts, suspensions): &mut (&mut Interrupts, &mut Signal),
    mut refused: Option<String>,
) -> Result<Last, TerminalError> {
    let mut taken = Taken::new()?;
    let mut terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
    let mut keys = taken.keys();
    if refused.is_some() {
        screen.on(Input::Trouble(refused.clone()));
    }
    draw(&mut terminal, screen)?;
    loop {
        let input = tokio::select! {
            // Somebody ends it, or the connection broke.
            () = interrupts.next() => return Ok(Last::Over),
            _ = suspensions.recv() => return Ok(Last::Suspended),
            told = told.recv() => told,
            key = next(&mut keys) => key?,
        };
        let Some(input) = input else {
            return Ok(Last::Over);
        };
        if matches!(input, Input::Key(_)) && refused.take().is_some() {
            screen.on(Input::Trouble(None));
        }
        let mut next = screen.on(input);
        // What came meanwhile is seen at once.
        while next == Next::On
            && let Ok(more) = keys.try_recv()
        {
            next = screen.on(more?);
        }
        match next {
            Next::Quit => return Ok(Last::Over),
            Next::Suspend => return Ok(Last::Suspended),
            Next::On => draw(&mut terminal, screen)?,
        }
    }
}

fn draw(
    terminal: &mut Terminal<CrosstermBackend<Stdout>>,
    screen: &mut Screen,
) -> Result<(), TerminalError> {
    let size = terminal.size()?;
    screen.on(Input::Size(size.width, size.height));
    terminal.draw(|frame| screen.draw(frame.buffer_mut()))?;
    Ok(())
}

/// None where there are no keys any more.
async fn next(keys: &mut UnboundedReceiver<io::Result<Input>>) -> io::Result<Option<Input>> {
    keys.recv().await.transpose()
}

/// Whether it goes on.
fn hand_on(sender: &UnboundedSender<io::Result<Input>>) -> bool {
    match event::read() {
        Ok(event) => input(&event).is_none_or(|input| sender.send(Ok(input)).is_ok()),
        Err(error) => {
            drop(sender.send(Err(error)));
            false
        }
    }
}

/// Waits for what is typed, and not for long; whether there is a terminal still. Of one that was closed, crossterm reads nothing, for ever.
fn is_there() -> io::Result<bool> {
    let stdin = stdin();
    let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
    let time = Timespec {
        tv_sec: 0,
        tv_nsec: LOOK.subsec_nanos().into(),
    };
    match poll(&mut polled, Some(&time)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let closed = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    Ok(!polled[0].revents().intersects(closed))
}

/// What an event is to the screen; None where it is nothing.
fn input(event: &Event) -> Option<Input> {
    let key = match event {
        Event::Resize(width, height) => return Some(Input::Size(*width, *height)),
        Event::Key(key) if key.kind != KeyEventKind::Release => key,
        _ => return None,
    };
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(Input::Key(match key.code {
        KeyCode::Char('c' | 'd') if is_control => Key::Interrupt,
        KeyCode::Char('z') if is_control => Key::Suspend,
        KeyCode::Char('f') if is_control => Key::PageDown,
        KeyCode::Char('b') if is_control => Key::PageUp,
        KeyCode::Char(_) if is_control => return None,
        KeyCode::Char(one) => Key::Char(one),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::F(1) => Key::Char('?'),
        KeyCode::F(10) => Key::Char('q'),
        _ => return None,
    }))
}

/// A terminal that is taken. Dropping it gives it back.
struct Taken {
    over: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

impl Taken {
    fn new() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        // What a panic says is read on the terminal as it was.
        HOOK.call_once(|| {
            let before = panic::take_hook();
            panic::set_hook(Box::new(move |said| {
                give_back();
                before(said);
            }));
        });
        enable_raw_mode()?;
        let taken = Self {
            over: Arc::default(),
            reader: None,
        };
        execute!(stdout(), EnterAlternateScreen)?;
        Ok(taken)
    }

    /// A thread that waits for keys, as long as the terminal is taken.
    fn keys(&mut self) -> UnboundedReceiver<io::Result<Input>> {
        let (sender, keys) = unbounded_channel();
        let over = Arc::clone(&self.over);
        self.reader = Some(thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                // What is typed, and changes of the size, which do not come by the same way.
                let there =
                    is_there().and_then(|there| Ok((there, there && event::poll(Duration::ZERO)?)));
                match there {
                    Ok((true, false)) => {}
                    Ok((true, true)) if hand_on(&sender) => {}
                    Ok(_) => return,
                    Err(error) => {
                        drop(sender.send(Err(error)));
                        return;
                    }
                }
            }
        }));
        keys
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // What is typed from now on is the shell's, also while probes are still being detached.
        let until = Instant::now() + LAST_LOOK;
        let is_over = |reader: &JoinHandle<()>| reader.is_finished() || Instant::now() >= until;
        while self.reader.as_ref().is_some_and(|reader| !is_over(reader)) {
            thread::sleep(LOOK / 10);
        }
        give_back();
    }
}

/// As it was, and seen to be at the last. Where that fails there is no terminal any more.
fn give_back() {
    drop(disable_raw_mode());
    drop(execute!(stdout(), LeaveAlternateScreen, Show));
}
