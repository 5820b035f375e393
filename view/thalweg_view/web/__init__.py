"""The view over HTTP: requests, answers, streams of events, and the files of the page."""
