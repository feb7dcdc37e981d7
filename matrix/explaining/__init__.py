"""Why a verdict is what it is: from source to time, link by link, whose change it is, and what else differs."""
