"""What people read: the HTML page, the sign-off page, JUnit XML, Markdown, the terminal."""
