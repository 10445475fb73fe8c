"""The boards, a module each; a large one keeps some of its panels in a module beside it."""
